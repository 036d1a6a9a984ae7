#include "src/backends/serve.h"

#include <algorithm>
#include <vector>

#include "src/backends/loaders.h"
#include "src/backends/missing.h"
#include "src/backends/words.h"
#include "src/base/error.h"
#include "src/base/log.h"

namespace mxfp4 {

namespace {

constexpr std::string_view unset = "unset:";

/// Whether a setting is a variable of the environment: its name is in capitals.
bool is_variable(std::string_view name) { return name.find_first_of("abcdefghijklmnopqrstuvwxyz") == name.npos; }

/// The settings for which `is_meant` is true, by name.
std::string describe_if(const Backend& backend, const Model* model, bool (*is_meant)(std::string_view name)) {
  std::vector<std::string> texts;
  std::string_view last;
  for (const Setting& s : backend.requires_) {
    if (model && s.when && !s.when(*model)) continue;
    std::string_view name = s.name;
    const bool is_unset = name.starts_with(unset);
    if (is_unset) name.remove_prefix(unset.size());
    if (!is_meant(name)) continue;
    const char* value = is_unset ? "unset" : s.value;
    if (name == last)
      texts.back() += fmt::format(" or {}", value);
    else
      texts.push_back(fmt::format("{} {}", name, value));
    last = name;
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// The options for a set's ranks, and for several GPUs that share the experts of one rank. SGLang's Triton kernels do
/// not share them.
std::string parallel_options(const Served& set) {
  if (set.tp_size > 1) return fmt::format(" --tensor-parallel-size {}", set.tp_size);
  const bool is_sglang = set.backend.engine == "sglang";
  if (is_sglang && set.backend.name.starts_with("triton")) return {};
  const int gpus = expert_parallel_gpus(set.model, set.load);
  if (gpus < 2) return {};
  const std::string shared = is_sglang ? fmt::format("--ep-size {}", gpus) : "--enable-expert-parallel";
  return fmt::format(" --tensor-parallel-size {} {}", gpus, shared);
}

/// The environment that a set needs, before a command: "VARIABLE=value "; empty: nothing.
std::string environment_of(const Backend& backend, const Model& model) {
  std::string out;
  for (const Setting& s : backend.requires_)
    if (is_variable(s.name) && (!s.when || s.when(model))) out += fmt::format("{}={} ", s.name, shell_word(s.value));
  return out;
}

/// " --moe-backend marlin": the engine's option for the backend's kernel; of several names the first.
std::string kernel_option(const Backend& b) {
  for (const Setting& s : b.requires_)
    if (std::string name = s.name; name.starts_with("moe_")) {
      std::replace(name.begin(), name.end(), '_', '-');
      return fmt::format(" --{} {}", name, words(s.value).front());
    }
  return {};
}

}  // namespace

std::string describe_settings(const Backend& backend, const Model* model) {
  return describe_if(backend, model, [](std::string_view) { return true; });
}

std::string describe_who_sets(const Backend& b, const Model& model, bool has_loader) {
  if (!has_loader) {
    const std::string all = describe_settings(b, &model);
    return all.empty() ? all : "it requires " + all;
  }
  const std::string by_loader = describe_if(b, &model, [](std::string_view name) { return !is_variable(name); });
  const std::string by_user = describe_if(b, &model, is_variable);
  return fmt::format("{}{}{}", by_loader.empty() ? "" : "the loader sets " + by_loader,
                     by_loader.empty() || by_user.empty() ? "" : "; ", by_user.empty() ? "" : "it requires " + by_user);
}

std::string describe_fits(const Backend& backend, const std::string& family) {
  std::vector<std::string> texts;
  for (const Fit& f : fits_of(backend)) {
    texts.push_back(f.library + " " + f.range);
    const std::string since = loader_since(backend, family), first = words(f.range).front();
    if (f.library == backend.engine && !since.empty() && backend.releases.contains(since) &&
        compare_versions(first, since) < 0)
      texts.back().replace(f.library.size() + 1, first.size(), since);
    if (f.library != backend.engine || !backend.layout_file.empty()) continue;  // a layout file says nothing of GPUs
    const std::string lacks = describe_missing(backend);
    texts.back() += fmt::format(" on {}{}", backend.gpu, lacks.empty() ? "" : fmt::format(" ({})", lacks));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string why_not_loaded(const Model& model) {
  const MoeLayer* first = nullptr;
  for (const MoeLayer& layer : model.layers) {
    if (layer.module.starts_with("base_model."))
      return fmt::format("{}: names of PEFT, which engines do not load; rename the tensors, without base_model.model.",
                         layer.module);
    if (layer.kind != LayerKind::model) continue;
    if (!first) first = &layer;
    if (layer.experts.size() != first->experts.size() || layer.intermediate != first->intermediate)
      return fmt::format("{}: {} of intermediate size {}, {} has {} of {}; engines load layers of one size only",
                         layer.module, counted(layer.experts.size(), "expert"), layer.intermediate, first->module,
                         first->experts.size(), first->intermediate);
  }
  return {};
}

std::string serve_command(const Served& set, const std::string& out) {
  if (!heads_divide(set.model, set.tp_size) || !why_not_loaded(set.model).empty()) return {};
  const Backend& b = set.backend;
  std::string command = fmt::format("{} serve {}", b.engine, shell_word(out));
  if (!has_loader(b, set.model.family, set.release)) return {};
  command += parallel_options(set);
  if (!set.is_first) command += kernel_option(b);
  return environment_of(b, set.model) + command;
}

}  // namespace mxfp4
