#include <algorithm>

#include "src/base/error.h"
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

std::string to_text(const KernelReport& report) {
  std::string text =
      wrapped(fmt::format("kernel {} on {} (tolerance: {})", report.kernel, report.device, report.reason),
              text_width(1)) +
      "\n";
  std::string layer;
  int64_t right = 0;
  double largest = 0;
  for (const KernelCheck& c : report.checks) {
    if (c.layer != layer)
      text += fmt::format("{}\n{:>8} {:>9} {:>6} {:>8} {:>9} {:>9} {:>9}\n", printable(c.layer), "tokens", "experts",
                          "rms", "clamped", "rel. L2", "max. abs", "cosine");
    layer = c.layer;
    text += fmt::format("{:>8} {:>9} {:>6.2f} {:>7.1f}% {:>9.2g} {:>9.2g} {:>9.6f} {}\n", c.tokens,
                        fmt::format("{}/{}", c.covered, c.experts), c.w13_rms, 100 * c.clamped,
                        c.comparison.relative_l2, c.comparison.max_abs, c.comparison.cosine,
                        c.right() ? toned(Tone::good, "right") : toned(Tone::bad, "WRONG"));
    right += c.right();
    largest = std::max(largest, c.comparison.relative_l2);
  }
  return text + fmt::format("{} of {} batches right, largest relative L2 error {:.2g}\n", right, report.checks.size(),
                            largest);
}

}  // namespace mxfp4
