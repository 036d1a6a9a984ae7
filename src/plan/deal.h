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

}  // namespace mxfp4
