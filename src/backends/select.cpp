#include "src/backends/select.h"

#include <algorithm>

#include "src/backends/gpu.h"
#include "src/backends/loaders.h"
#include "src/backends/missing.h"
#include "src/backends/unread.h"
#include "src/backends/words.h"
#include "src/base/log.h"

namespace mxfp4 {

namespace {

/// Choices of an engine that are no kernel: the engine requires an option, or refuses MXFP4 there.
constexpr std::string_view no_kernel = "unset", refuses = "none";

class Selection {
 public:
  Selection(const Model& model, const Deployment& deployment) : model_(model), to_(deployment) {
    to_.release = or_newest(to_.release, to_.engine);
  }

  BackendChoice by_engine() {
    const Rule* rule = find_rule();
    if (!rule) nothing("its choice on this GPU is not known");
    std::vector<std::string> order = words(rule->order);
    choice_.engine_choice = order.front();
    if (order.front() == no_kernel || order.front() == refuses) order.erase(order.begin());
    choice_.why = fmt::format("{} {} on {} ({}{}{}) ", to_.engine, to_.release, to_.gpu, rule->file,
                              *rule->where ? ", " : "", rule->where);
    choice_.why += choice_.engine_choice == no_kernel ? "uses an MXFP4 kernel only if one is requested"
                   : choice_.engine_choice == refuses ? "refuses MXFP4"
                                                      : fmt::format("prefers {}", fmt::join(order, ", then "));
    take(order);
    if (choice_.backend.empty()) take(lossless());  // needs an option of the engine
    settle();
    return finished();
  }

  /// The first form of a backend that the release loads for the model and this number of ranks, and that runs on the
  /// GPU, if one is given. Null if there is none.
  const Backend* row(const std::string& name) const {
    for (const Backend* b : backends())
      if (name == b->name && to_.engine == b->engine && is_for_model(*b) && b->releases.contains(to_.release) &&
          (to_.gpu.empty() || runs_on(b->gpu, to_.gpu)) && (!b->most_ranks || to_.tp_size <= b->most_ranks))
        return b;
    return nullptr;
  }

  /// Every backend of the engine that holds the model there without a loss.
  std::vector<std::string> lossless() const {
    std::vector<std::string> out;
    for (const Backend* b : backends())
      if (to_.engine == b->engine && !b->rewrite && obstacle(b->name).empty()) add_once(out, b->name);
    return out;
  }

  bool is_read(const std::string& name) const { return has_loader(*row(name), model_.family, to_.release); }

 private:
  const Rule* find_rule() const {
    const std::string family = model_.pairs ? "gpt-oss" : model_.family;
    for (const Rule& r : find_engine(to_.engine).chooser())
      if ((!*r.families || has_word(r.families, family)) && has_word(r.gpus, to_.gpu) &&
          r.releases.contains(to_.release))
        return &r;
    return nullptr;
  }

  /// SGLang has triton_kernels for GPT-OSS alone.
  bool is_for_model(const Backend& b) const {
    return (!b.takes || b.takes(model_)) && (model_.pairs || to_.engine != "sglang" || !b.name.starts_with("triton"));
  }

  /// The reason why no form of a backend fits: the GPU, the model's family, or the release.
  std::string why_no_row(const std::string& name) const {
    bool runs = false, takes = false, loads = false;
    for (const Backend* b : backends()) {
      if (name != b->name || to_.engine != b->engine || !runs_on(b->gpu, to_.gpu)) continue;
      runs = true;
      if (!is_for_model(*b)) continue;
      takes = true;
      loads |= b->releases.contains(to_.release);
    }
    if (!runs) return fmt::format("not written for {} on {}", to_.engine, to_.gpu);
    if (!takes) return fmt::format("not written for models of family {}", model_.family);
    if (!loads) return fmt::format("not written for {} {}", to_.engine, to_.release);
    return fmt::format("not written for {} ranks", to_.tp_size);
  }

  /// The reason why a backend cannot hold this model there; empty if it can.
  std::string obstacle(const std::string& name) const {
    const Backend* b = row(name);
    if (!b) return why_no_row(name);
    if (const std::string why = why_missing(*b, to_.release, to_.gpu); !why.empty()) return why;
    for (const MoeLayer& layer : model_.layers) {
      if (std::string why = refusal(*b, model_, layer, to_.tp_size); !why.empty()) return why;
      if (std::string why = share_refusal(*b, layer, to_.tp_size); !why.empty()) return why;
    }
    return {};
  }

  bool is_lossy(const std::string& name) const { return row(name)->rewrite != nullptr; }

  /// Takes the first that is lossless and holds the model; the others that do so are alternatives.
  void take(const std::vector<std::string>& order) {
    for (const std::string& name : order) {
      if (const std::string why = obstacle(name); !why.empty())
        choice_.why += fmt::format("; not {}: {}", name, why);
      else if (is_lossy(name))
        choice_.why += fmt::format("; not {0}: lossy; choose it with --backend {0}", name);
      else if (choice_.backend.empty())
        choice_.backend = name;
      else
        choice_.alternatives.push_back(name);
    }
  }

  /// Whether a backend may be written: a loader reads it, or no loader is needed.
  bool is_served(const std::string& name) const { return to_.no_loader || is_read(name); }

  /// Lists the other backends that run there and may be written. If no loader reads the chosen backend, the first of
  /// these replaces it.
  void settle() {
    if (choice_.backend.empty()) nothing(choice_.why);
    auto& others = choice_.alternatives;
    for (const std::string& name : lossless())
      if (name != choice_.backend) add_once(others, name);
    std::erase_if(others, [&](const std::string& name) { return !is_served(name); });
    if (is_served(choice_.backend)) return;
    choice_.why += fmt::format("; not {}: no loader reads it", choice_.backend);
    if (others.empty()) nothing(choice_.why);
    choice_.backend = others.front();
    others.erase(others.begin());
  }

  /// The backends that could be chosen, but change values.
  std::vector<std::string> lossy() const {
    std::vector<std::string> out;
    for (const Backend* b : backends())
      if (to_.engine == b->engine && b->rewrite && b->name != choice_.backend && obstacle(b->name).empty() &&
          is_served(b->name))
        add_once(out, b->name);
    return out;
  }

  BackendChoice finished() {
    choice_.layout_version = row(choice_.backend)->layout_version;
    choice_.is_read = is_read(choice_.backend);
    choice_.lossy_alternatives = lossy();
    return std::move(choice_);
  }

  [[noreturn]] void nothing(const std::string& why) const {
    const bool runs = !lossless().empty();
    std::string instead = read_instead(model_, to_);
    if (runs && to_.no_loader) instead = fmt::format("use --backend {}", fmt::join(lossless(), " or "));
    fail(ErrorKind::usage, "--backend auto: {} {}, {}, {}: {}{}{}{}", to_.engine, to_.release, model_.family, to_.gpu,
         why, runs ? "" : "; no backend of mxfp4-pack runs there", instead.empty() ? "" : "; " + instead,
         runs && !to_.no_loader ? "; --no-loader writes it for a loader of your own" : "");
  }

  const Model& model_;
  Deployment to_;
  BackendChoice choice_;
};

/// Prints the choice and its reason, the engine's own choice for the original checkpoint if it differs, and the
/// alternatives.
void note_choice(const BackendChoice& c, const std::string& engine) {
  note(fmt::format("--backend auto: {}: {}", c.backend, c.why));
  if (!c.engine_choice.empty() && c.engine_choice != c.backend)
    note(fmt::format("for the original checkpoint {} would use {}{}", engine,
                     c.engine_choice == no_kernel     ? "no MXFP4 kernel"
                     : c.engine_choice == "canonical" ? "the experts as published"
                                                      : c.engine_choice,
                     c.is_read ? fmt::format("; for OUT the loader selects {} ({})", c.backend,
                                             find_backend(c.backend, engine, c.layout_version).summary)
                               : ""));
  if (!c.alternatives.empty()) note(fmt::format("alternatives: {}", fmt::join(c.alternatives, ", ")));
  if (!c.lossy_alternatives.empty())
    note(fmt::format("alternatives that change values: {}", fmt::join(c.lossy_alternatives, ", ")));
}

}  // namespace

BackendChoice select_backend(const Model& model, const Deployment& d) {
  if (d.gpu.empty())
    fail(ErrorKind::usage, "no known GPU is here, so --backend auto needs --gpu, one of {}", known_architectures());
  return Selection(model, d).by_engine();
}

std::vector<std::string> read_backends(const Model& model, const Deployment& d) {
  const Selection selection(model, d);
  std::vector<std::string> names = selection.lossless();
  std::erase_if(names, [&](const std::string& name) { return !selection.is_read(name); });
  return names;
}

BackendChoice choose_backend(const std::string& name, const Model& model, Deployment to) {
  if (name == "auto") {
    if (to.gpu.empty()) to.gpu = gpu_here();
    const BackendChoice choice = select_backend(model, to);
    note_choice(choice, to.engine);
    return choice;
  }
  const Backend* form = Selection(model, to).row(name);
  return {.backend = name, .layout_version = form ? form->layout_version : ""};
}

void check_gpu(const Backend& backend, const Deployment& to, const Model* model) {
  if (to.gpu.empty()) return;
  if (!runs_on(backend.gpu, to.gpu)) {
    const std::string all = gpus_of(backend.name, backend.engine, model);
    fail(
        ErrorKind::usage, "--gpu {}: {} of {} is for {}{}", to.gpu, backend.name, backend.engine, all,
        runs_on(all, to.gpu) ? fmt::format(", its layout version {} for {}", backend.layout_version, backend.gpu) : "");
  }
  if (const std::string why = why_missing(backend, to.release, to.gpu); !why.empty())
    fail(ErrorKind::usage, "--gpu {}: {}: {}", to.gpu, backend.name, why);
}

}  // namespace mxfp4
