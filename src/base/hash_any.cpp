// XXH3 as the library was compiled.
#include "src/base/checksum.h"

namespace mxfp4 {

Hash hash_bytes(const void* data, int64_t bytes) { return XXH3_128bits(data, size_t(bytes)); }

void Hasher::take(const void* data, int64_t bytes) { XXH3_128bits_update(state_.get(), data, size_t(bytes)); }

}  // namespace mxfp4
