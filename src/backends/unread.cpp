#include "src/backends/unread.h"

#include <algorithm>
#include <utility>

#include "src/backends/gpu.h"
#include "src/backends/loaders.h"
#include "src/backends/select.h"
#include "src/base/error.h"

namespace mxfp4 {

namespace {

/// The last words of a refusal.
constexpr std::string_view anyway = "--no-loader writes it for a loader of your own";

/// "a, b or c"
std::string one_of_words(const std::vector<std::string>& names) {
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

bool is_engine(std::string_view name) {
  return std::any_of(std::begin(engines), std::end(engines), [&](const Engine& e) { return name == e.name; });
}

/// "--engine vllm==0.33.0 --backend marlin", of the engine's newest release; empty if its loader reads nothing there.
std::string newest_release(const Model& model, Deployment to) {
  const std::string newest = or_newest("", to.engine), asked = std::exchange(to.release, newest);
  if (asked.empty() || compare_versions(asked, newest) >= 0) return {};
  const auto names = read_backends(model, to);
  return names.empty() ? "" : fmt::format("--engine {}=={} --backend {}", to.engine, newest, one_of_words(names));
}

/// "--engine vllm --backend marlin", of each engine that has a loader on the GPU.
std::vector<std::string> other_engines(const Model& model, Deployment to) {
  std::vector<std::string> out;
  const std::string own = to.engine;
  to.release.clear();
  for (const Engine& engine : engines) {
    to.engine = engine.name;
    if (engine.name == own) continue;
    if (const auto names = read_backends(model, to); !names.empty())
      out.push_back(fmt::format("--engine {} --backend {}", engine.name, one_of_words(names)));
  }
  return out;
}

std::vector<std::string> other_gpus(const Model& model, Deployment to) {
  std::vector<std::string> out;
  for (const std::string& gpu : architectures()) {
    to.gpu = gpu;
    if (!read_backends(model, to).empty()) out.push_back(gpu);
  }
  return out;
}

/// The form that no loader of the release reads, and the first release whose loader does.
std::string describe_unread(const Backend& b, const Model& model, const Deployment& to) {
  if (!b.layout_file.empty()) return fmt::format("no loader of {} reads a layout file without a canary", b.engine);
  const std::string since = loader_since(b, model.family);
  return fmt::format("no loader of {} {} reads {} (layout version {}) of {}{}", b.engine,
                     or_newest(to.release, b.engine), b.name, b.layout_version, model.family,
                     since.empty() ? "" : fmt::format("; it is read from {} on", since));
}

}  // namespace

std::string read_instead(const Model& model, const Deployment& to) {
  auto names = read_backends(model, to);
  for (std::string& name : names)
    if (to.gpu.empty()) name += fmt::format(" ({})", gpus_of(name, to.engine, &model));
  if (!names.empty()) return fmt::format("use --backend {}", one_of_words(names));
  std::vector<std::string> ways = other_engines(model, to);
  if (const std::string newest = newest_release(model, to); !newest.empty()) ways.insert(ways.begin(), newest);
  if (!ways.empty()) return fmt::format("use {}", fmt::join(ways, ", or "));
  const auto gpus = to.gpu.empty() ? std::vector<std::string>() : other_gpus(model, to);
  return gpus.empty() ? "" : fmt::format("{} has loaders for other GPUs: {}", to.engine, fmt::join(gpus, ", "));
}

void check_loader(const Backend& b, const Model& model, const Deployment& to) {
  if (to.no_loader || !is_engine(b.engine) || has_loader(b, model.family, to.release)) return;
  const std::string instead =
      b.layout_file.empty() ? read_instead(model, to) : "learn it with 'python3 -m mxfp4_pack.learn', which adds one";
  fail(ErrorKind::usage, "{}; {}{}", describe_unread(b, model, to), instead.empty() ? "" : instead + "; ", anyway);
}

void check_shares(const Backend& b, const Model& model, const Deployment& to) {
  for (const MoeLayer& layer : model.layers) {
    const std::string why = share_refusal(b, layer, to.tp_size);
    if (why.empty()) continue;
    const std::string instead = read_instead(model, to);
    fail(ErrorKind::usage, "--tp-size {}: {} {} refuses {}: {}; {}--tp-size 1 with expert parallelism", to.tp_size,
         b.engine, or_newest(to.release, b.engine), b.name, why, instead.empty() ? "use " : instead + ", or ");
  }
}

}  // namespace mxfp4
