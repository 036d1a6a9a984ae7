// Batches of jobs for one worker.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/plan/plan.h"

namespace mxfp4 {

/// Groups jobs in the order of each group's first job. A group has consecutive jobs for one tensor's codes that write
/// up to `bytes` bytes together. Every other job is alone; if `bytes` is 0, all jobs are. Jobs are given by index.
std::vector<std::vector<int64_t>> job_batches(const Plan& plan, std::span<const int64_t> jobs, int64_t bytes);

}  // namespace mxfp4
