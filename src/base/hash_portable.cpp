// XXH3 with the widest vectors of the processor, for processors for which xxHash's static library does not choose them.
#include "src/base/hash_portable.h"

#include "src/base/checksum.h"

namespace mxfp4 {

namespace {

/// Null: the library's own SSE2.
const WideHash* widest() {
  static const WideHash* const found = __builtin_cpu_supports("avx512f") ? &avx512_hash
                                       : __builtin_cpu_supports("avx2")  ? &avx2_hash
                                                                         : nullptr;
  return found;
}

}  // namespace

Hash hash_bytes(const void* data, int64_t bytes) {
  if (!widest()) return XXH3_128bits(data, size_t(bytes));
  uint64_t hash[2];
  widest()->bytes(data, size_t(bytes), hash);
  return {hash[0], hash[1]};
}

void Hasher::take(const void* data, int64_t bytes) {
  if (widest())
    widest()->take(state_.get(), data, size_t(bytes));
  else
    XXH3_128bits_update(state_.get(), data, size_t(bytes));
}

}  // namespace mxfp4
