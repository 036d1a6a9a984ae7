// Jobs that one worker carries out one after the other, or together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/plan/plan.h"

namespace mxfp4 {

/// Groups jobs, given by number, in the order of each group's first: consecutive jobs of one tensor's codes that write
/// up to `bytes` bytes together (0: groups of one), and every other job alone.
std::vector<std::vector<int64_t>> job_batches(const Plan& plan, std::span<const int64_t> jobs, int64_t bytes);

}  // namespace mxfp4
