// XXH3 with the widest vectors of the processor: AVX-512 hashes four times as fast as the SSE2 that x86-64 has at
// least.
#include <xxh_x86dispatch.h>

#include "src/base/checksum.h"

namespace mxfp4 {

Hash hash_bytes(const void* data, int64_t bytes) { return XXH3_128bits_dispatch(data, size_t(bytes)); }

void Hasher::take(const void* data, int64_t bytes) { XXH3_128bits_update_dispatch(state_.get(), data, size_t(bytes)); }

}  // namespace mxfp4
