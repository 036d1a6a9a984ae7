// XXH3 for several widths of vectors. The interface has none of xxHash's types, because each file that compiles xxHash
// again has its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mxfp4 {

struct WideHash {
  void (*bytes)(const void* data, size_t bytes, uint64_t hash[2]);  // low half, high half
  void (*take)(void* state, const void* data, size_t bytes);        // state: XXH3_state_t
};

extern const WideHash avx2_hash, avx512_hash;

}  // namespace mxfp4
