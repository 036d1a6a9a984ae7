// The jobs that an earlier run has finished.
#pragma once

#include <cstdint>
#include <vector>

#include "src/io/open_files.h"

namespace mxfp4 {

struct Checksums;
struct Plan;

/// Of the jobs in `done`, those whose bytes in the plan's files have their checksums in `sums`; 1 for each. Reports
/// files with other bytes.
std::vector<uint8_t> jobs_on_disk(const Plan& plan, const std::vector<bool>& done, Checksums& sums, OpenFiles& files,
                                  int threads);

}  // namespace mxfp4
