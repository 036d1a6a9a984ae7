// What verify found, and how it is printed.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "src/verify/published.h"
#include "src/verify/verify.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// What was found, at which level of each set; kernels: a report for each set, by its index; bench: where it was asked
/// for.
struct Verdict {
  std::vector<Level> levels;
  Problems problems;
  std::vector<std::string> incomplete;  // what OUT's source lacks, and was allowed to
  std::map<size_t, KernelReport> kernels;
  std::optional<BenchReport> bench;
  std::optional<PublishedReport> published;
  double seconds = 0;
  Level level() const { return *std::min_element(levels.begin(), levels.end()); }
};

/// On stdout: one JSON object, or the reports, what is wrong, and the verdict.
void print(const VerifyOptions& options, const PackedCheckpoint& packed, const Verdict& verdict);

}  // namespace mxfp4
