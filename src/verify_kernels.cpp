#include "src/verify_kernels.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "kernels/moe_cpu.h"
#include "kernels/moe_diagnose.h"
#include "kernels/moe_inputs.h"
#include "kernels/moe_reference.h"
#include "kernels/routing.h"
#include "src/layer_source.h"

namespace mxfp4 {

namespace {

/// Which fragment an engine's backend reads with, and in which order w13's rows where the engine decides that. Written
/// from the engines, not from src/backends: a backend that is consistently wrong must not find a kernel that agrees.
struct EngineKernel {
  const char *backend, *engine, *layout_version, *fragment;  // "": any
  bool halves = false;                                       // also for models whose rows load as pairs
};
constexpr EngineKernel engine_kernels[] = {
    {"marlin", "sglang", "", "marlin", true},
    {"marlin", "", "", "marlin"},
    {"marlin-fp8", "", "", "marlin-fp8"},
    {"flashinfer-cutlass", "", "v1", "flashinfer-sm90-v1"},
    {"flashinfer-cutlass", "", "v2", "flashinfer-sm90-v2"},
    {"flashinfer-humming", "", "", "flashinfer-humming"},
    {"flashinfer-cutlass-mxfp8", "", "", "flashinfer-cutlass-sm100"},
    {"flashinfer-trtllm", "", "", "flashinfer-trtllm"},
    {"flashinfer-cutedsl", "", "", "flashinfer-cutedsl"},
    {"triton-hopper", "transformers", "a", "triton-hopper-a-strided"},
    {"triton-hopper", "transformers", "b", "triton-hopper-b-strided"},
    {"triton-hopper", "transformers", "c", "triton-hopper-c-strided"},
    {"triton-hopper", "", "a", "triton-hopper-a"},
    {"triton-hopper", "", "b", "triton-hopper-b"},
    {"triton-hopper", "", "c", "triton-hopper-c"},
    {"triton-hopper", "", "a-w4", "triton-hopper-a-w4"},
    {"triton-hopper", "", "b-w4", "triton-hopper-b-w4"},
    {"triton-hopper", "", "c-w4", "triton-hopper-c-w4"},
    {"triton-blackwell", "", "", "triton-blackwell"},
    {"deepgemm", "", "", "deepgemm"},
    {"deepgemm-mega", "", "", "deepgemm-mega"},
    {"aiter-a16w4", "", "", "aiter-a16w4"},
    {"aiter-w4a4", "", "", "aiter-w4a4"},
    {"vllm-cpu", "", "", "vllm-cpu"},
};

const EngineKernel* find_kernel(const Backend& b) {
  const auto is = [](std::string_view pattern, std::string_view name) { return pattern.empty() || pattern == name; };
  for (const EngineKernel& k : engine_kernels)
    if (is(k.backend, b.name) && is(k.engine, b.engine) && is(k.layout_version, b.layout_version)) return &k;
  return nullptr;
}

W13Order order_read(const EngineKernel& kernel, const Model& model) {
  const Fragment& fragment = *find_fragment(kernel.fragment);
  if (!fragment.w13_as_loaded) return fragment.w13;
  return {model.pairs && !kernel.halves ? 1 : 0, false};
}

/// What a model's own text says of the forward; OUT's copies of it may have been changed.
struct Settings {
  double alpha = 1, beta = 0, limit = 0, scaling = 1;
};
struct NamedSetting {
  const char* name;
  double Settings::*value;
};
constexpr NamedSetting named_settings[] = {{"activation's alpha", &Settings::alpha},
                                           {"activation's beta", &Settings::beta},
                                           {"activation's limit", &Settings::limit},
                                           {"routed scaling factor", &Settings::scaling}};

Settings settings_of(const Model& m) {
  return {m.activation.alpha, m.activation.beta, m.activation.limit, m.router.scaling};
}

/// As OUT's config.json says, which engines read.
Settings settings_in_config(const PackedCheckpoint& p) {
  Checkpoint changed = p.manifest.source;
  changed.config = parse_json(read_text(p.dir + "/config.json", 1 << 26, "config.json"), "config.json");
  Json& holder = changed.config.contains("quantization_config") ? changed.config : changed.config["text_config"];
  Json& quantization = holder["quantization_config"];
  if (quantization.contains("source_quantization_config"))
    quantization = Json(quantization["source_quantization_config"]);
  Problems reported_elsewhere;
  return settings_of(recognise(changed, {p.manifest.options.gate_up}, reported_elsewhere));
}

/// As the manifest's set says, which loaders read.
Settings settings_in_manifest(const Json& set_model, const Settings& otherwise) {
  const Json activation = set_model.value("activation", Json::object());
  return {activation.value("alpha", otherwise.alpha), activation.value("beta", otherwise.beta),
          activation.value("limit", otherwise.limit), set_model.value("routed_scaling_factor", otherwise.scaling)};
}

/// What runs: the source's settings, except those that a copy in OUT has otherwise. Each of those is a problem.
Settings settings_to_run(const PackedCheckpoint& p, const Json& set_model, const Settings& source, Problems& problems) {
  Settings run = source;
  const auto take = [&](const char* file, const Settings& said) {
    for (const NamedSetting& s : named_settings) {
      if (said.*s.value == source.*s.value) continue;
      problems.error(file, "{} {}, the source's is {}", s.name, said.*s.value, source.*s.value);
      run.*s.value = said.*s.value;
    }
  };
  take(manifest_name, settings_in_manifest(set_model, source));
  if (std::filesystem::exists(p.dir + "/config.json")) take("config.json", settings_in_config(p));
  return run;
}

void check_order(const Json& set_model, W13Order read, Problems& problems) {
  const Json rows = set_model.value("w13_rows", Json::object());
  const int64_t block = rows.value("block", read.block);
  const std::string read_first = read.up_first ? "up" : "gate", first = rows.value("first", read_first);
  if (block != read.block || first != read_first)
    problems.error(manifest_name, "w13_rows are blocks of {}, {} first; the kernel reads blocks of {}, {} first", block,
                   first, read.block, read_first);
}

/// The source by its own model type; --gate-up of the conversion only where that is not known.
Model recognise_source(const Checkpoint& source, const PackedCheckpoint& p) {
  Problems unknown, problems;
  Model model = recognise(source, {}, unknown);
  if (!unknown.any()) return model;
  model = recognise(source, {p.manifest.options.gate_up}, problems);
  problems.throw_if_any();
  return model;
}

RouterRule rule_of(const Model& model, int64_t experts, uint64_t seed) {
  RouterRule rule;
  rule.experts = experts;
  rule.top_k = int(std::clamp<int64_t>(model.router.top_k, 1, experts));
  rule.renormalise = model.router.renormalise, rule.scaling = model.router.scaling;
  if (model.router.scoring == "softmax") return rule;
  rule.scoring = model.router.scoring == "sigmoid" ? Scoring::sigmoid : Scoring::sqrt_softplus;
  for (int64_t e = 0; e < experts; ++e) rule.bias.push_back(float((e * 7 + int64_t(seed)) % 11) * 0.01f);
  return rule;
}

/// A set's packed tensors of one layer on one rank, whole.
class PackedLayer {
 public:
  PackedLayer(const PackedSet& set, const ShardReader& reader, size_t layer, int rank) {
    for (size_t i = 0; i < set.plan.packed.size(); ++i) {
      const PackedTensor& t = set.plan.packed[i];
      if (size_t(t.layer) != layer || t.rank != rank) continue;
      std::vector<uint8_t>& data = data_[size_t(t.role)][size_t(t.part)];
      data.resize(size_t(t.bytes));
      reader.read(set.stored[i], 0, t.bytes, data.data());
      intermediate_ = t.intermediate;
    }
  }
  /// Columns of the intermediate dimension that the rank holds.
  Span intermediate() const { return intermediate_; }
  PackedMoe view() const {
    const auto at = [&](Role role, Part part) -> const uint8_t* {
      const auto& data = data_[size_t(role)][size_t(part)];
      return data.empty() ? nullptr : data.data();
    };
    PackedMoe m;
    m.w13 = at(Role::w13, Part::codes), m.w13_scale = at(Role::w13, Part::scales);
    m.w13_bias = at(Role::w13, Part::bias);
    m.w2 = at(Role::w2, Part::codes), m.w2_scale = at(Role::w2, Part::scales), m.w2_bias = at(Role::w2, Part::bias);
    return m;
  }

 private:
  std::vector<uint8_t> data_[2][std::size(parts)];
  Span intermediate_;
};

/// What a rank's columns are of the source; down's bias is the first rank's.
MoeSource slice(const MoeSource& whole, Span columns, bool first_rank) {
  MoeSource experts = whole;
  const auto skip_rows = [&](SourceMatrix& m) {
    for (SourceRows* rows : {&m.codes, &m.scales, &m.bias})
      if (rows->data) rows->data += columns.begin * rows->stride;
    m.n = columns.count;
  };
  for (SourceExpert& e : experts) {
    skip_rows(e.gate), skip_rows(e.up);
    e.down.codes.data += columns.begin / 2, e.down.scales.data += columns.begin / group;
    e.down.k = columns.count;
    if (!first_rank) e.down.bias = {};
  }
  return experts;
}

/// One layer: what is true of it, and what runs.
class LayerCheck {
 public:
  LayerCheck(const EngineKernel& kernel, const Model& truth, const MoeLayer& layer, const MoeSource& source,
             const Settings& run, const KernelOptions& options)
      : truth_(truth), source_(source), run_(run), options_(options), name_(layer.module) {
    const Settings said = settings_of(truth);
    const W13Order order = order_read(kernel, truth);
    whole_.experts = int64_t(layer.experts.size()), whole_.hidden = layer.hidden;
    whole_.intermediate = whole_.padded_intermediate = layer.intermediate;
    whole_.w13_block = order.block, whole_.w13_up_first = order.up_first;
    set_activation(whole_, said);
    rule_ = rule_of(truth, whole_.experts, options.seed);
    whole_.top_k = rule_.top_k;
    case_.fragment = find_fragment(kernel.fragment);
    case_.routed_scaling = said.scaling;
  }

  void add_rank(LayerSize padded, Span columns, bool first_rank, const PackedMoe& packed) {
    MoeConfig c = whole_;
    c.intermediate = columns.count, c.padded_hidden = padded.hidden, c.padded_intermediate = padded.intermediate;
    case_.shards.push_back({c, slice(source_, columns, first_rank), {}, packed});
    columns_ += columns.count;
  }

  void run(KernelReport& report, Problems& problems) {
    const int64_t all = (whole_.experts + rule_.top_k - 1) / rule_.top_k;  // tokens that reach every expert
    for (const int64_t tokens : options_.tokens)
      check(route_random(rule_, tokens, options_.seed), false, report, problems);
    check(route_to_every_expert(rule_, all, options_.seed), true, report, problems);
  }

 private:
  static void set_activation(MoeConfig& c, const Settings& s) {
    c.alpha = s.alpha, c.beta = s.beta;
    c.limit = s.limit > 0 ? s.limit : std::numeric_limits<double>::infinity();
  }

  void check(const Routing& routing, bool forced, KernelReport& report, Problems& problems) {
    for (MoeShard& shard : case_.shards) shard.routing = routing;
    case_.x = moe_inputs(whole_, source_, routing, options_.seed);
    // Ranks that are all there add up to the layer, which is computed without splitting it.
    const bool complete = columns_ == whole_.intermediate;
    const MoeReference reference = moe_reference(whole_, source_, case_.x, routing);
    const MoeCpuOutput got = forward();

    KernelCheck check;
    check.layer = name_, check.forced = forced, check.tokens = routing.tokens;
    check.experts = whole_.experts, check.covered = experts_covered(routing);
    check.w13_rms = reference.w13_rms, check.clamped = reference.clamped;
    const double tolerance = options_.tolerance > 0 ? options_.tolerance : case_.fragment->tolerance;
    check.comparison = compare(complete ? reference.out : reference_of(case_), got.out, tolerance);
    check.leaks = got.leaks;
    if (!check.comparison.right()) check.diagnosis = diagnose(case_, got.out, tolerance).mistake;
    if (!check.right()) complain(check, problems);
    report.checks.push_back(std::move(check));
  }

  /// The packed bytes with the settings of OUT, ranks added up.
  MoeCpuOutput forward() const {
    MoeCpuOutput sum;
    sum.out.resize(case_.x.size());
    for (const MoeShard& shard : case_.shards) {
      MoeConfig config = shard.config;
      set_activation(config, run_);
      Routing routing = shard.routing;
      for (float& weight : routing.weights) weight = float(weight * run_.scaling / case_.routed_scaling);
      const MoeCpuOutput part = moe_cpu(*case_.fragment, config, shard.packed, case_.x, routing);
      for (size_t i = 0; i < sum.out.size(); ++i) sum.out[i] += part.out[i];
      sum.leaks += part.leaks;
    }
    return sum;
  }

  void complain(const KernelCheck& c, Problems& problems) const {
    const std::string batch =
        fmt::format("{} token{}{}", c.tokens, c.tokens == 1 ? "" : "s", c.forced ? ", every expert" : "");
    if (c.comparison.right()) return problems.error(name_, "{}: {} values in padded columns are not 0", batch, c.leaks);
    problems.error(name_, "{}: relative L2 error {:.2g}, at most {:.2g} expected{}: {}", batch,
                   c.comparison.relative_l2, c.comparison.tolerance,
                   c.comparison.not_finite ? fmt::format(", {} values are not finite", c.comparison.not_finite) : "",
                   c.diagnosis.empty() ? "no likely mistake explains it" : c.diagnosis);
  }

  const Model& truth_;
  const MoeSource& source_;
  const Settings& run_;
  const KernelOptions& options_;
  std::string name_;
  MoeConfig whole_;  // the layer, not split
  RouterRule rule_;
  MoeCase case_;
  int64_t columns_ = 0;
};

bool is_chosen(const Model& model, const MoeLayer& layer, const KernelOptions& options) {
  if (options.all_layers) return true;
  if (options.layers.empty()) return &layer == &model.layers.front();
  return layer.space == Space::model && std::count(options.layers.begin(), options.layers.end(), layer.index) > 0;
}

/// The source's layer of the same name and size; null and a problem where there is none.
const MoeLayer* same_layer(const Model& truth, const MoeLayer& layer, Problems& problems) {
  for (const MoeLayer& l : truth.layers)
    if (l.module == layer.module && l.hidden == layer.hidden && l.intermediate == layer.intermediate &&
        l.experts.size() == layer.experts.size())
      return &l;
  problems.error(layer.module, "the source has no such layer");
  return nullptr;
}

}  // namespace

std::string kernel_of(const Backend& backend) {
  const EngineKernel* kernel = find_kernel(backend);
  return kernel ? kernel->fragment : "";
}

KernelReport verify_kernels(const PackedCheckpoint& p, size_t index, const Checkpoint& source,
                            const KernelOptions& options, Problems& problems) {
  const Plan& plan = p.sets[index].plan;
  const EngineKernel* kernel = find_kernel(*plan.backend);
  if (!kernel) fail(Kind::usage, "no kernel computes backend {} of {}", plan.backend->name, plan.backend->engine);
  const Model truth = recognise_source(source, p);
  const Json& said = p.manifest.sets[index].model;
  const Settings run = settings_to_run(p, said, settings_of(truth), problems);
  check_order(said, order_read(*kernel, truth), problems);

  KernelReport report{kernel->fragment, "cpu", find_fragment(kernel->fragment)->reason, {}};
  const ShardReader reader(p.files);
  for (size_t i = 0; i < p.model.layers.size(); ++i) {
    if (!is_chosen(p.model, p.model.layers[i], options)) continue;
    const MoeLayer* layer = same_layer(truth, p.model.layers[i], problems);
    if (!layer) continue;
    const LayerSource rows(source, *layer);
    std::vector<PackedLayer> ranks;
    for (const int rank : plan.tp.ranks) ranks.emplace_back(p.sets[index], reader, i, rank);
    LayerCheck check(*kernel, truth, *layer, rows.experts(), run, options);
    for (size_t r = 0; r < ranks.size(); ++r)
      check.add_rank(rank_size(*plan.backend, *layer, plan.tp.size), ranks[r].intermediate(), plan.tp.ranks[r] == 0,
                     ranks[r].view());
    check.run(report, problems);
  }
  if (report.checks.empty() && !problems.any()) fail(Kind::usage, "OUT has none of the layers asked for");
  return report;
}

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
                      {"ok", c.right()}});
  return {
      {"kernel", report.kernel}, {"device", report.device}, {"tolerance_reason", report.reason}, {"checks", checks}};
}

std::string to_text(const KernelReport& report) {
  std::string text =
      fmt::format("kernel {} on {} (tolerance: {})\n{:<32} {:>6} {:>9} {:>6} {:>8} {:>9} {:>9} {:>9} {}\n",
                  report.kernel, report.device, report.reason, "layer", "tokens", "experts", "rms", "clamped",
                  "rel. L2", "max. abs", "cosine", "verdict");
  for (const KernelCheck& c : report.checks)
    text +=
        fmt::format("{:<32} {:>6} {:>9} {:>6.2f} {:>7.1f}% {:>9.2g} {:>9.2g} {:>9.6f} {}\n", c.layer, c.tokens,
                    fmt::format("{}/{}", c.covered, c.experts), c.w13_rms, 100 * c.clamped, c.comparison.relative_l2,
                    c.comparison.max_abs, c.comparison.cosine, !c.right() ? "WRONG" : "right");
  return text;
}

}  // namespace mxfp4
