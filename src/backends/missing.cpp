#include "src/backends/missing.h"

#include "src/backends/gpu.h"
#include "src/backends/words.h"

namespace mxfp4 {

namespace {

/// Such a release raises as it loads.
struct Missing {
  const char *engine, *backend, *gpu;  // gpu: a word of Backend::gpu
  Range releases;
};
constexpr Missing missing[] = {
    {"vllm", "deepgemm", "SM12x", {"0.27.0", "0.27.1"}},
    {"vllm", "triton-blackwell", "SM12x", {"", "0.31.0"}},
    {"sglang", "deepgemm", "SM12x", {"", "0.5.20"}},
};

bool is_of(const Missing& m, const std::string& backend, const std::string& engine) {
  return backend == m.backend && engine == m.engine;
}

}  // namespace

std::string gpus_in(const Backend& b, const std::string& release) {
  const std::string asked = or_newest(release, b.engine);
  std::vector<std::string> gpus = comma_separated(b.gpu);
  for (const Missing& m : missing)
    if (is_of(m, b.name, b.engine) && m.releases.contains(asked)) std::erase(gpus, m.gpu);
  return fmt::format("{}", fmt::join(gpus, ", "));
}

std::string why_missing(const std::string& backend, const std::string& engine, const std::string& release,
                        const std::string& gpu) {
  const std::string asked = or_newest(release, engine);
  for (const Missing& m : missing)
    if (is_of(m, backend, engine) && m.releases.contains(asked) && runs_on(m.gpu, gpu))
      return fmt::format("{} {} brings no such kernel for {}", engine, asked, gpu);
  return {};
}

std::string describe_missing(const Backend& b) {
  std::vector<std::string> texts;
  for (const Missing& m : missing) {
    if (!is_of(m, b.name, b.engine)) continue;
    const Range since = {*m.releases.first ? m.releases.first : b.releases.first, m.releases.last};
    texts.push_back(fmt::format("not {} on {}", describe(since, find_engine(b.engine).known), m.gpu));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace mxfp4
