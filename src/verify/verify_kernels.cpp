#include "src/verify/verify_kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/moe/check/moe_diagnose.h"
#include "kernels/moe/check/moe_kernel.h"
#include "kernels/moe/moe_inputs.h"
#include "kernels/moe/moe_reference.h"
#include "kernels/moe/routing.h"
#include "kernels/parallel.h"
#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/base/threads.h"
#include "src/checkpoint/shard_reader.h"
#include "src/models/layer_limits.h"
#include "src/packed/packed_checkpoint.h"
#include "src/verify/kernel_config.h"
#include "src/verify/layer_source.h"
#include "src/verify/run_settings.h"

namespace mxfp4 {

namespace {

/// Recognises the source with the options of the conversion. Only if its own model type is unknown, --gate-up is used.
Model recognise_source(const Checkpoint& source, const PackedCheckpoint& p) {
  Problems unknown, problems;
  ModelOptions options = p.manifest.options.model;
  options.gate_up.clear();
  Model model = recognise(source, options, unknown);
  if (!unknown.any()) return model;
  model = recognise(source, p.manifest.options.model, problems);
  problems.throw_if_any();
  return model;
}

RouterRule rule_of(const Model& model, const MoeConfig& layer, uint64_t seed) {
  RouterRule rule;
  rule.experts = layer.experts;
  rule.top_k = layer.top_k;
  rule.renormalise = model.router.renormalise;
  rule.scaling = model.router.scaling;
  if (model.router.scoring == "softmax") return rule;
  rule.scoring = model.router.scoring == "sigmoid" ? Scoring::sigmoid : Scoring::sqrt_softplus;
  for (int64_t e = 0; e < rule.experts; ++e) rule.bias.push_back(float((e * 7 + int64_t(seed)) % 11) * 0.01f);
  return rule;
}

/// The number of tokens that reach every expert.
int64_t tokens_for_all(const MoeConfig& layer) { return (layer.experts + layer.top_k - 1) / layer.top_k; }

class Stopwatch {
 public:
  /// Seconds since the last call.
  double lap() {
    const auto last = std::exchange(last_, Clock::now());
    return std::chrono::duration<double>(last_ - last).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

/// All packed tensors of one layer of a set on one rank, in memory.
class PackedLayer {
 public:
  PackedLayer(const PackedSet& set, const ShardReader& reader, size_t layer, int rank, int threads) {
    std::vector<Read> reads;
    for (size_t i = 0; i < set.plan.packed.size(); ++i) {
      const PackedTensor& t = set.plan.packed[i];
      if (size_t(t.layer) != layer || t.rank != rank) continue;
      auto& data = data_[size_t(t.role)][size_t(t.part)];
      data = std::make_unique_for_overwrite<uint8_t[]>(size_t(t.bytes));
      for (int64_t at = 0; at < t.bytes; at += t.slice_bytes)
        reads.push_back({{&set.stored[i], at, t.slice_bytes}, data.get() + at});
      intermediate_ = t.intermediate;
    }
    read_all(reader, reads, threads);
  }
  /// The columns of the intermediate dimension on this rank.
  Span intermediate() const { return intermediate_; }
  PackedMoe view() const {
    const auto at = [&](Role role, Part part) -> const uint8_t* { return data_[size_t(role)][size_t(part)].get(); };
    PackedMoe m;
    m.w13 = at(Role::w13, Part::codes);
    m.w13_scale = at(Role::w13, Part::scales);
    m.w13_bias = at(Role::w13, Part::bias);
    m.w2 = at(Role::w2, Part::codes);
    m.w2_scale = at(Role::w2, Part::scales);
    m.w2_bias = at(Role::w2, Part::bias);
    m.w13_residual = reinterpret_cast<const float*>(at(Role::w13, Part::residual));
    m.w2_residual = reinterpret_cast<const float*>(at(Role::w2, Part::residual));
    return m;
  }

 private:
  std::unique_ptr<uint8_t[]> data_[2][std::size(parts)];
  Span intermediate_;
};

/// The share of the source that a rank's columns are. Only the first rank has the bias of down.
MoeSource slice(const MoeSource& whole, Span columns, bool first_rank) {
  MoeSource experts = whole;
  const auto skip_rows = [&](SourceMatrix& m) {
    for (SourceRows* rows : {&m.codes, &m.scales, &m.bias})
      if (rows->data) rows->data += columns.begin * rows->stride;
    m.n = columns.count;
  };
  for (SourceExpert& e : experts) {
    skip_rows(e.gate);
    skip_rows(e.up);
    e.down.codes.data += columns.begin / 2;
    e.down.scales.data += columns.begin / group;
    e.down.k = columns.count;
    if (!first_rank) e.down.bias = {};
  }
  return experts;
}

/// The data that all layers of set share.
struct Checked {
  const Backend& backend;
  const Model& expected;  // of the source
  const RunSettings& run;
  const KernelOptions& options;
  bool cuda;
};

/// Checks one layer: the expected result, and the kernels that compute it.
class LayerCheck {
 public:
  /// layer: of the source. source: the rows of its experts.
  LayerCheck(const Checked& what, const MoeLayer& layer, const MoeSource& source)
      : what_(what), source_(source), name_(layer.module), left_out_(not_finite(source)) {
    if (!left_out_.empty())
      warn(fmt::format("{}: NaN or infinity in {} of the source, {} first: not computed", name_,
                       counted(left_out_.size(), "expert"), *left_out_.begin()));
    const RunSettings stated = settings_of(what.expected);
    whole_ = kernel_config(what.backend, what.expected, layer, {layer.hidden, layer.intermediate});
    set_activation(whole_, stated);
    rule_ = rule_of(what.expected, whole_, what.options.seed);
    case_.format = what.backend.kernel;
    case_.routed_scaling = stated.scaling;
  }

  void add_rank(LayerSize padded, Span columns, bool first_rank, const PackedMoe& packed) {
    MoeConfig c = whole_;
    c.intermediate = columns.count;
    c.padded_hidden = padded.hidden;
    c.padded_intermediate = padded.intermediate;
    case_.shards.push_back({c, slice(source_, columns, first_rank), {}, packed});
    set_activation(c, what_.run);
    kernels_.push_back(open_moe_kernel(*case_.format, c, packed, what_.cuda));
    columns_ += columns.count;
  }

  void run(KernelReport& report, Problems& problems, Progress& progress) {
    if (left_out_.size() == source_.size()) return progress.add(int64_t(what_.options.tokens.size() + 1));
    for (const int64_t tokens : what_.options.tokens) {
      check(route_random(rule_, tokens, what_.options.seed), false, report, problems);
      progress.add(1);
    }
    check(route_to_every_expert(rule_, tokens_for_all(whole_), what_.options.seed), true, report, problems);
    progress.add(1);
  }

 private:
  static void set_activation(MoeConfig& c, const RunSettings& s) {
    c.alpha = s.alpha;
    c.beta = s.beta;
    c.limit = s.limit > 0 ? s.limit : std::numeric_limits<double>::infinity();
  }

  void check(Routing routing, bool forced, KernelReport& report, Problems& problems) {
    for (int32_t& expert : routing.ids)
      if (left_out_.contains(expert)) expert = -1;
    for (MoeShard& shard : case_.shards) shard.routing = routing;
    Stopwatch watch;
    case_.x = moe_inputs(whole_, source_, routing, what_.options.seed);
    // The results of all ranks add up to the layer, so the reference computes the layer without splitting it.
    const bool complete = columns_ == whole_.intermediate;
    const MoeReference reference = moe_reference(whole_, source_, case_.x, routing);
    report.seconds.reference += watch.lap();
    if (what_.options.file) what_.options.file->add(name_, forced, routing, case_.x, reference.out);
    const MoeCpuOutput got = forward();
    report.seconds.kernel += watch.lap();

    KernelCheck check;
    check.layer = name_;
    check.forced = forced;
    check.tokens = routing.tokens;
    check.experts = whole_.experts;
    check.covered = experts_covered(routing);
    check.w13_rms = reference.w13_rms;
    check.clamped = reference.clamped;
    check.comparison = compare(complete ? reference.out : reference_of(case_), got.out, tolerance());
    check.leaks = got.leaks;
    if (!check.comparison.right()) {
      const Diagnosis d = diagnose(case_, got.out, tolerance());
      check.diagnosis = d.mistake;
      check.explained = d.explained;
    }
    if (!check.right()) complain(check, problems);
    report.checks.push_back(std::move(check));
  }

  double tolerance() const {
    if (what_.options.tolerance > 0) return what_.options.tolerance;
    // Each rank rounds its own result.
    return what_.cuda ? cuda_tolerance * std::sqrt(double(case_.shards.size())) : case_.format->tolerance;
  }

  /// The sum of all ranks' results on the packed bytes, with the settings of OUT.
  MoeCpuOutput forward() {
    MoeCpuOutput sum;
    sum.out.resize(case_.x.size());
    for (size_t r = 0; r < kernels_.size(); ++r) {
      Routing routing = case_.shards[r].routing;
      for (float& weight : routing.weights) weight = float(weight * what_.run.scaling / case_.routed_scaling);
      const MoeCpuOutput part = kernels_[r]->run(case_.x, routing);
      for (size_t i = 0; i < sum.out.size(); ++i) sum.out[i] += part.out[i];
      sum.leaks += part.leaks;
    }
    return sum;
  }

  void complain(const KernelCheck& c, Problems& problems) const {
    const std::string batch = counted(c.tokens, "token") + (c.forced ? ", every expert" : "");
    if (c.comparison.right()) return problems.error(name_, "{}: {} values in padded columns are not 0", batch, c.leaks);
    problems.error(name_, "{}: relative L2 error {:.2g}, at most {:.2g} expected{}: {}", batch,
                   c.comparison.relative_l2, c.comparison.tolerance,
                   c.comparison.not_finite ? fmt::format(", {} values are not finite", c.comparison.not_finite) : "",
                   c.diagnosis.empty() ? "no likely mistake explains it"
                                       : fmt::format("{} (explains {:.0f}% of it)", c.diagnosis, 100 * c.explained));
  }

  const Checked& what_;
  const MoeSource& source_;
  std::string name_;
  const std::set<int32_t> left_out_;  // experts
  MoeConfig whole_;                   // the whole layer
  RouterRule rule_;
  MoeCase case_;
  std::vector<std::unique_ptr<MoeKernel>> kernels_;  // of case_'s ranks
  int64_t columns_ = 0;
};

bool is_chosen(const Model& model, const MoeLayer& layer, const KernelOptions& options) {
  if (options.all_layers) return true;
  if (options.layers.empty()) return &layer == &model.layers.front();
  return layer.kind == LayerKind::model && std::count(options.layers.begin(), options.layers.end(), layer.index) > 0;
}

/// The source's layer with the same name and size; null, with a problem, if there is none.
const MoeLayer* same_layer(const Model& expected, const MoeLayer& layer, Problems& problems) {
  for (const MoeLayer& l : expected.layers)
    if (l.module == layer.module && l.hidden == layer.hidden && l.intermediate == layer.intermediate &&
        l.experts.size() == layer.experts.size())
      return &l;
  problems.error(layer.module, "the source has no such layer");
  return nullptr;
}

/// Whether the layers run on a GPU. All layers use the same device.
bool use_cuda(const Model& expected, const Plan& plan, const std::vector<const MoeLayer*>& layers,
              const KernelOptions& options) {
  if (options.device == "cpu") return false;
  const KernelFormat& format = *plan.backend->kernel;
  std::string missing = cuda_kernel_missing(format);
  const bool could = missing.empty();
  for (const MoeLayer* layer : layers) {
    if (!missing.empty()) break;
    const MoeConfig rank =
        kernel_config(*plan.backend, expected, *layer, rank_size(*plan.backend, *layer, plan.tp_size));
    const std::vector<MoeConfig> ranks(size_t(plan.tp_size), rank);
    const int64_t tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
    missing = cuda_kernel_missing(format, ranks, std::max(tokens, tokens_for_all(rank)));
  }
  if (missing.empty()) return true;
  if (options.device == "cuda") fail(ErrorKind::device, "kernel {} on cuda: {}", format.name, missing);
  if (could) warn(fmt::format("kernel {} runs on the CPU: {}", format.name, missing));
  return false;
}

/// Prints a note that names layers with their own activation limit. Both sides are computed without these limits.
void note_limits(const Checkpoint& source, const std::vector<const MoeLayer*>& layers) {
  const LayerLimits limits = layer_limits(source.config);
  std::vector<int64_t> limited;
  for (const MoeLayer* layer : layers)
    if (layer->kind == LayerKind::model && std::count(limits.layers.begin(), limits.layers.end(), layer->index))
      limited.push_back(layer->index);
  if (!limited.empty())
    note(fmt::format(
        "{}: {} limits the activation of layer {}; the packed layer and the reference are computed without it",
        config_name, limits.key, fmt::join(limited, ", ")));
}

/// Runs the loops of the kernels on threads, and updates the progress line's time while they run.
class Loops {
 public:
  Loops(int threads, Progress& progress) : threads_(threads) {
    set_parallel_for([threads, &progress](int64_t count, const std::function<void(int64_t)>& work) {
      run_jobs(count, threads, [&](int64_t i) {
        work(i);
        progress.add(0);
      });
    });
  }
  ~Loops() {
    set_parallel_for([threads = threads_](int64_t count, const std::function<void(int64_t)>& work) {
      run_jobs(count, threads, work);
    });
  }
  Loops(const Loops&) = delete;

 private:
  int threads_;
};

}  // namespace

void check_layers(const PackedCheckpoint& p, const KernelOptions& options) {
  std::vector<int64_t> there;
  for (const MoeLayer& l : p.model.layers)
    if (l.kind == LayerKind::model) there.push_back(l.index);
  for (const int64_t layer : options.layers)
    if (!std::count(there.begin(), there.end(), layer))
      fail(ErrorKind::usage, "--layers {}: {} has the MoE layers {}", layer, p.dir, fmt::join(there, ", "));
}

namespace {

/// The layers to compute: their indices in the output's model, and the same layers of the source's.
struct ChosenLayers {
  std::vector<size_t> indices;
  std::vector<const MoeLayer*> layers;
};

ChosenLayers chosen_layers(const Model& model, const Model& source, const KernelOptions& options, Problems& problems) {
  ChosenLayers out;
  int next = 0;  // among the requested layers
  for (size_t i = 0; i < model.layers.size(); ++i) {
    if (!is_chosen(model, model.layers[i], options)) continue;
    if (next++ % options.part.count != options.part.index) continue;
    if (const MoeLayer* layer = same_layer(source, model.layers[i], problems)) {
      out.indices.push_back(i);
      out.layers.push_back(layer);
    }
  }
  return out;
}

}  // namespace

KernelReport verify_kernels(const PackedCheckpoint& p, size_t index, const Checkpoint& source,
                            const KernelOptions& options, Problems& problems) {
  const Plan& plan = p.sets[index].plan;
  const KernelFormat* format = plan.backend->kernel;
  if (!format) fail(ErrorKind::usage, "no kernel computes backend {} of {}", plan.backend->name, plan.backend->engine);
  const Model expected = recognise_source(source, p);
  const Json& stated = p.manifest.sets[index].model;
  const RunSettings run = settings_to_run(p, stated, settings_of(expected), problems);
  const int64_t half = plan.backend->layout_file.empty() ? -1 : plan.backend->multiple.intermediate;
  check_order(stated, order_read(*plan.backend, expected), half, problems);

  const auto [chosen, layers] = chosen_layers(p.model, expected, options, problems);
  note_limits(source, layers);
  const bool cuda = use_cuda(expected, plan, layers, options);
  KernelReport report{format->name, cuda ? "cuda" : "cpu", cuda ? cuda_reason : format->reason, {}, {}};
  const Checked what{*plan.backend, expected, run, options, cuda};
  const ShardReader reader(p.files);
  Progress progress("computing", int64_t(layers.size() * (options.tokens.size() + 1)), "batches");
  const Loops loops(options.threads, progress);
  for (size_t i = 0; i < layers.size(); ++i) {
    Stopwatch watch;
    const MoeLayer* layer = layers[i];
    const LayerSource rows(source, *layer, options.threads);
    std::vector<PackedLayer> ranks;
    for (int rank = 0; rank < plan.tp_size; ++rank)
      ranks.emplace_back(p.sets[index], reader, chosen[i], rank, options.threads);
    report.seconds.reading += watch.lap();
    LayerCheck check(what, *layer, rows.experts());
    for (size_t r = 0; r < ranks.size(); ++r)
      check.add_rank(rank_size(*plan.backend, *layer, plan.tp_size), ranks[r].intermediate(), r == 0, ranks[r].view());
    report.seconds.kernel += watch.lap();
    check.run(report, problems, progress);
  }
  const KernelSeconds& s = report.seconds;
  note_detail(fmt::format("kernels: {} reading, {} reference, {} packed layers", human_seconds(s.reading),
                          human_seconds(s.reference), human_seconds(s.kernel)));
  return report;
}

}  // namespace mxfp4
