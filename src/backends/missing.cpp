#include "src/backends/missing.h"

#include "src/backends/gpu.h"
#include "src/backends/words.h"

namespace mxfp4 {

std::string gpus_in(const Backend& b, const std::string& release) {
  const std::string asked = or_newest(release, b.engine);
  std::vector<std::string> gpus = comma_separated(b.gpu);
  for (const NoKernel& n : b.no_kernel)
    if (n.releases.contains(asked)) std::erase(gpus, n.gpu);
  return fmt::format("{}", fmt::join(gpus, ", "));
}

std::string why_missing(const Backend& b, const std::string& release, const std::string& gpu) {
  const std::string asked = or_newest(release, b.engine);
  for (const NoKernel& n : b.no_kernel)
    if (n.releases.contains(asked) && runs_on(n.gpu, gpu))
      return fmt::format("{} {} brings no such kernel for {}", b.engine, asked, gpu);
  return {};
}

std::string describe_missing(const Backend& b) {
  std::vector<std::string> texts;
  for (const NoKernel& n : b.no_kernel) {
    const Range since = {*n.releases.first ? n.releases.first : b.releases.first, n.releases.last};
    texts.push_back(fmt::format("not {} on {}", describe(since, find_engine(b.engine).known), n.gpu));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace mxfp4
