// AMD Quark: MODULE.E.gate_proj|up_proj|down_proj.weight U8 [n, k/2] and .weight_scale U8 [n, k/32]. For W4A8 there is
// also .input_scale, which is copied. Quark's GPT-OSS has separate tensors for each expert as well, but gate and up
// share one: MODULE.E.gate_up_proj.weight, .weight_scale and .bias. Its rows are gate, up, gate, up .. down_proj has
// the same three. Source: amd/Kimi-K2.5-MXFP4 and amd/gpt-oss-120b-w-mxfp4-a-fp8, SGLang quark/weights.py, vLLM
// _load_weights_quark.
#include <map>

#include "src/base/log.h"
#include "src/models/families.h"
#include "src/models/router.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames quark_names = {"gate_proj", "up_proj", "down_proj", "weight", "weight_scale"};

void check_marker(const Checkpoint& ck, Problems& problems) {
  const Json* q = quantization_config(ck.config);
  if (q && !mentions(*q, "dtype", "fp4"))
    problems.error(config_name, "quantization_config has no dtype 'fp4', but the experts are MXFP4");
}

bool matches_quark(const Checkpoint& ck) {
  const Json* q = quantization_config(ck.config);
  return q && mentions(*q, "quant_method", "quark");
}

void read_quark(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (model.model_type.starts_with("muse_spark")) model.family = "muse-spark";  // vLLM has a method for it alone
  if (read_spelled_experts(ck, quark_names, model, problems)) check_marker(ck, problems);
}

bool is_gpt_oss(const Checkpoint& ck) {
  ExpertName name;
  for (const Tensor& t : ck.tensors)
    if (parse_expert(t.name, name) && name.proj == "gate_up_proj" && name.suffix == "weight" && is_code_dtype(t.dtype))
      return true;
  return false;
}

/// One projection of one expert. k is 0 if the projection is incomplete; a problem then gives the reason.
struct Whole {
  const Tensor *codes = nullptr, *scales = nullptr, *bias = nullptr;
  int64_t n = 0, k = 0;

  /// The rows first, first + step ..
  Projection rows(int64_t first, int64_t step) const {
    const auto slice = [&](const Tensor* t) {
      if (!t) return Slice{};
      const int64_t row = t->bytes / n;
      return Slice{{t, 0, t->bytes}, first * row, step * row};
    };
    return {slice(codes), slice(scales), slice(bias)};
  }
};

Whole find_whole(const Checkpoint& ck, const std::string& name, Problems& problems) {
  Whole w{ck.find(name + ".weight"), ck.find(name + ".weight_scale"), ck.find(name + ".bias")};
  if (!w.codes || !w.scales || w.codes->shape.size() != 2)
    return problems.error(name, "incomplete: weight [rows, columns/2] and weight_scale expected"), w;
  w.n = w.codes->shape[0];
  w.k = check_pair(ck, *w.codes, {w.n}, w.codes->shape[1], *w.scales, problems);
  if (w.k > 0 && w.bias && (w.bias->dtype != Dtype::BF16 || w.bias->shape != std::vector<int64_t>{w.n})) {
    problems.error(ck.where(*w.bias), "{}, BF16 [{}] expected", describe(w.bias->dtype, w.bias->shape), w.n);
    w.k = 0;
  }
  return w;
}

void add_expert(const Checkpoint& ck, int64_t id, MoeLayer& layer, Model& model, Problems& problems) {
  const std::string name = fmt::format("{}.{}", layer.module, id);
  const Whole w13 = find_whole(ck, name + ".gate_up_proj", problems),
              w2 = find_whole(ck, name + ".down_proj", problems);
  if (!w13.k || !w2.k) return;
  if (layer.experts.empty()) {
    layer.hidden = w13.k;
    layer.intermediate = w2.k;
  }
  const bool first = layer.experts.empty() && model.layers.empty(), bias = w13.bias && w2.bias;
  if (w13.k != layer.hidden || w13.n != 2 * layer.intermediate || w2.k != layer.intermediate || w2.n != layer.hidden)
    return problems.error(printable(name), "gate_up {} x {} and down {} x {}, hidden {} and intermediate {} expected",
                          w13.n, w13.k, w2.n, w2.k, layer.hidden, layer.intermediate);
  if (!w13.bias != !w2.bias || (!first && bias != model.bias))
    return problems.error(printable(name), "a bias on some projections only, on all or none expected");
  model.bias = bias;
  if (model.pairs)
    layer.experts.push_back({w13.rows(0, 2), w13.rows(1, 2), w2.rows(0, 1)});
  else
    layer.experts.push_back({w13.rows(0, 1), w13.rows(layer.intermediate, 1), w2.rows(0, 1)});
}

void read_gpt_oss(const Checkpoint& ck, const ModelOptions& options, Model& model, Problems& problems) {
  model.pairs = stored_in_pairs(ck, options, {.pairs = {"gpt_oss"}, .halves = {}}, "gate_up_proj", problems);
  std::map<std::string_view, int64_t> modules;  // with the number of experts
  ExpertName name;
  for (const Tensor& t : ck.tensors)
    if (parse_expert(t.name, name) && name.proj == "gate_up_proj" && name.suffix == "weight") ++modules[name.module];
  for (const auto& [module, count] : modules) {
    MoeLayer layer;
    layer.module = module;
    if (!parse_layer(module, layer.kind, layer.index)) {
      problems.error(printable(module), "no layer number in the name");
      continue;
    }
    const int64_t rows = routed_experts(ck, layer, count, problems);
    if (rows >= 0 && rows != count)
      problems.error(printable(module), "{}, the router has {}", counted(count, "expert"), rows);
    for (int64_t id = 0; id < count; ++id) add_expert(ck, id, layer, model, problems);
    if (!layer.experts.empty()) model.layers.push_back(std::move(layer));
  }
  read_settings(ck, model, problems);
  model.activation = {"swigluoai", 1.702, 1, config_number(ck.config, "swiglu_limit", 7)};
  check_marker(ck, problems);
  check_config(ck, model, experts_key(ck.config), "hidden_size", "intermediate_size", problems);
}

}  // namespace

const Family quark = {"quark", matches_quark, read_quark};
const Family gpt_oss_quark = {"gpt-oss quark", is_gpt_oss, read_gpt_oss};

}  // namespace mxfp4
