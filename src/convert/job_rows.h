// Jobs that one worker carries out one after the other, or together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/plan/plan.h"

namespace mxfp4 {

/// The jobs of a plan that are given by number, in rows: those of one tensor's codes that follow one another, as many
/// as write `bytes` bytes (0: one), and each other job alone. Rows stand where their first jobs stood.
std::vector<std::vector<int64_t>> job_rows(const Plan& plan, std::span<const int64_t> jobs, int64_t bytes);

}  // namespace mxfp4
