// Divides a plan into parts, which nodes carry out independently.
#pragma once

#include <vector>

#include "src/plan/plan.h"

namespace mxfp4 {

/// The part that each file and each job of a plan belongs to.
struct Deal {
  std::vector<int> of_file, of_job;
};

/// Assigns whole files, the largest first, each to the part with the fewest bytes. Files that one job writes, such as
/// those of all ranks of a tensor, stay together, so that the source is read once. The result depends only on the plan;
/// parts differ by at most one such group of files.
Deal deal(const Plan& plan, int parts);

/// The files that a job writes; none if the job only reads.
std::vector<int> files_of(const Plan& plan, const Job& job);

/// The bytes that a job writes; for a job that only reads, the bytes that it reads.
int64_t bytes_of(const Plan& plan, const Job& job);

}  // namespace mxfp4
