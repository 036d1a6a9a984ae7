// A plan dealt out to parts, which nodes carry out each by itself.
#pragma once

#include <vector>

#include "src/plan/plan.h"

namespace mxfp4 {

/// The part that each file and each job of a plan belongs to.
struct Deal {
  std::vector<int> of_file, of_job;
};

/// Deals out whole files, those with most bytes first, each to the part that has least. Files that one job writes, as
/// those of all ranks of a tensor, stay together, so that the source is read once. The same plan is always dealt the
/// same; parts differ by at most one such share.
Deal deal(const Plan& plan, int parts);

/// The files that a job writes; none where it only reads.
std::vector<int> files_of(const Plan& plan, const Job& job);

/// The bytes of the source that a job moves where it only reads, and else those that it writes.
int64_t bytes_of(const Plan& plan, const Job& job);

}  // namespace mxfp4
