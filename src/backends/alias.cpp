#include "src/backends/alias.h"

#include <algorithm>

#include "src/backends/backend.h"
#include "src/backends/gpu.h"
#include "src/backends/select.h"
#include "src/backends/words.h"
#include "src/base/terminal.h"

namespace mxfp4 {

namespace {

/// An engine's names of kernels for which the engine writes no packed form of MXFP4, with the reason.
struct Unpacked {
  const char *engine, *name, *why;
};
constexpr Unpacked unpacked[] = {
    {"vllm", "b12x", "vLLM passes the original experts on, and b12x converts them on the GPU at every start"},
    {"vllm", "flashinfer_moe_ep_mega_deep_gemm",
     "vLLM hands over experts as published, and FlashInfer makes its own form of them on the GPU at every start"},
    {"vllm", "flashinfer_moe_ep_cutedsl", "vLLM converts the experts to BF16, and FlashInfer quantises them to NVFP4"},
    {"vllm", "aiter_triton_mxfp4_mxfp4", "it runs on gfx1250 alone, for which nothing is written here"},
};

void refuse_unpacked(const std::string& name, const std::string& engine) {
  for (const Unpacked& u : unpacked) {
    if (name != u.name) continue;
    if (engine != u.engine)
      fail(ErrorKind::usage, "--backend {}: a kernel of {}'s, not of {}'s; nothing to pack: {}", name, u.engine, engine,
           u.why);
    fail(ErrorKind::usage, "--backend {}: nothing to pack: {}", name, u.why);
  }
}

/// Whether an option of the engine selects b's kernel by `name`. For a lossy backend that is never enough.
bool is_called(const Backend& b, const std::string& name) {
  if (b.rewrite || name == "or") return false;  // "or" is between two values
  return std::any_of(b.requires_.begin(), b.requires_.end(), [&](const Setting& s) {
    return std::string_view(s.name).starts_with("moe_") && has_word(s.value, name);
  });
}

/// The backend in `names` that the engine prefers on a GPU for any model; empty if it prefers none.
std::string preferred(const std::vector<std::string>& names, const std::string& engine, const std::string& gpu) {
  for (const Rule& rule : find_engine(engine).chooser()) {
    if (!has_word(rule.gpus, gpu)) continue;
    for (const std::string& name : words(rule.order))
      if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  }
  return {};
}

}  // namespace

std::string backend_called(const std::string& name, const std::string& engine, const std::string& gpu) {
  const auto& all = backends();
  if (name == "auto" || std::any_of(all.begin(), all.end(), [&](const Backend* b) { return name == b->name; }))
    return name;
  const std::string where = gpu.empty() ? gpu_here() : gpu;
  std::vector<std::string> names = {"auto"}, meant, choices;
  for (const Backend* b : all) {
    if (engine == b->engine) add_once(names, b->name);
    if (engine != b->engine || !is_called(*b, name)) continue;
    add_once(choices, fmt::format("{} on {}", b->name, gpus_of(b->name, engine)));
    if (where.empty() || runs_on(b->gpu, where)) add_once(meant, b->name);
  }
  if (meant.size() == 1) return meant.front();
  if (const std::string one = preferred(meant, engine, where); !one.empty()) return one;
  refuse_unpacked(name, engine);
  if (choices.empty())
    fail(ErrorKind::usage, "no backend '{}'; 'mxfp4-pack backends' lists them{}", name, did_you_mean(name, names));
  fail(ErrorKind::usage, "--backend {}: of {} that is {}; {}", name, engine, fmt::join(choices, " or "),
       meant.empty() ? fmt::format("nothing on {}", where) : "choose one of them, or a GPU with --gpu");
}

}  // namespace mxfp4
