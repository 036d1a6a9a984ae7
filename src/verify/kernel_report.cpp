#include <algorithm>

#include "src/base/error.h"
#include "src/base/table.h"
#include "src/base/terminal.h"
#include "src/verify/verify_kernels.h"

namespace mxfp4 {

Json to_json(const KernelReport& report) {
  Json checks = Json::array();
  for (const KernelCheck& c : report.checks)
    checks.push_back({{"layer", c.layer},
                      {"tokens", c.tokens},
                      {"every_expert", c.forced},
                      {"experts", c.experts},
                      {"experts_covered", c.covered},
                      {"w13_rms", c.w13_rms},
                      {"clamped", c.clamped},
                      {"relative_l2", c.comparison.relative_l2},
                      {"max_abs", c.comparison.max_abs},
                      {"cosine", c.comparison.cosine},
                      {"not_finite", c.comparison.not_finite},
                      {"nonzero_pads", c.leaks},
                      {"tolerance", c.comparison.tolerance},
                      {"diagnosis", c.diagnosis},
                      {"explained", c.explained},
                      {"ok", c.right()}});
  const KernelSeconds& s = report.seconds;
  return {{"kernel", report.kernel},
          {"device", report.device},
          {"tolerance_reason", report.reason},
          {"seconds", {{"reading", s.reading}, {"reference", s.reference}, {"kernel", s.kernel}}},
          {"checks", checks}};
}

namespace {

std::vector<std::string> table_of(const KernelReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"tokens", "experts", "rms", "clamped", "rel. L2", "max. abs", "cosine", ""}};
  for (const KernelCheck& c : report.checks)
    rows.push_back({std::to_string(c.tokens), fmt::format("{}/{}", c.covered, c.experts),
                    fmt::format("{:.2f}", c.w13_rms), fmt::format("{:.1f}%", 100 * c.clamped),
                    fmt::format("{:.2g}", c.comparison.relative_l2), fmt::format("{:.2g}", c.comparison.max_abs),
                    fmt::format("{:.6f}", c.comparison.cosine),
                    c.right() ? toned(Tone::good, "right") : toned(Tone::bad, "WRONG")});
  return table(rows, ">>>>>>><");
}

}  // namespace

std::string to_text(const KernelReport& report, const std::string& prefix) {
  std::string text =
      fitted(fmt::format("{}kernel {} on {} (tolerance: {})", prefix, report.kernel, report.device, report.reason)) +
      "\n";
  const std::vector<std::string> lines = table_of(report);
  std::string layer;
  int64_t right = 0;
  double largest = 0;
  for (size_t i = 0; i < report.checks.size(); ++i) {
    const KernelCheck& c = report.checks[i];
    if (c.layer != layer) text += fmt::format("{}\n{}\n", printable(c.layer), lines.front());
    layer = c.layer;
    text += lines[i + 1] + "\n";
    right += c.right();
    largest = std::max(largest, c.comparison.relative_l2);
  }
  const std::string all =
      fmt::format("{} of {} batches right, largest relative L2 error {:.2g}", right, report.checks.size(), largest);
  return text + fitted(all) + "\n";
}

}  // namespace mxfp4
