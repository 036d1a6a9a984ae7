// XXH3 compiled with the options of the including file: one file for each width of vectors. All of xxHash is static
// here, so that no other code calls functions for vectors that the processor may lack.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/hash_portable.h"

namespace mxfp4 {

namespace {  // each including file has its own

constexpr WideHash wide_hash = {
    .bytes =
        [](const void* data, size_t bytes, uint64_t hash[2]) {
          const XXH128_hash_t h = XXH3_128bits(data, bytes);
          hash[0] = h.low64;
          hash[1] = h.high64;
        },
    .take = [](void* state, const void* data,
               size_t bytes) { XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, bytes); },
};

}  // namespace

}  // namespace mxfp4
