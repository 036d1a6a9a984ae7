// The results of verify, and their output as text or JSON.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "src/verify/published.h"
#include "src/verify/verify.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// The results. levels: one for each set. kernels: a report for each set, by its index.
struct Verdict {
  std::vector<Level> levels;
  Problems problems;
  std::vector<std::string> incomplete;  // the parts that OUT's source may lack, and does
  std::map<size_t, KernelReport> kernels;
  std::optional<PublishedReport> published;
  double seconds = 0;
  Level level() const { return levels.empty() ? Level::files : *std::min_element(levels.begin(), levels.end()); }
};

/// Prints to stdout: one JSON object; or the reports, the problems and the verdict.
void print(const VerifyOptions& options, const PackedCheckpoint& packed, const Verdict& verdict);

}  // namespace mxfp4
