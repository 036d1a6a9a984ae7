// Shared memory's banks, for plans (block_plan.h).
#pragma once

#include <cstdint>
#include <vector>

namespace mxfp4 {

/// How often a GPU must go to shared memory for the accesses of lanes, of `bytes` each at these places. Lanes of a
/// warp that meet in a bank take turns, unless they want the same word. bytes: 1 to 4, 8 or 16; the places are aligned.
int64_t wavefronts(const std::vector<int64_t>& places, int64_t bytes);

}  // namespace mxfp4
