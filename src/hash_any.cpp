// XXH3 as the library was compiled.
#include "src/checksum.h"

namespace mxfp4 {

Hash hash_bytes(const void* data, int64_t bytes) { return XXH3_128bits(data, size_t(bytes)); }

}  // namespace mxfp4
