// GPT-OSS as on Hugging Face: all experts of a layer in one tensor, no dot before blocks, scales and bias.
//   MODULE.gate_up_proj_blocks U8 [E, 2I, H/32, 16], _scales U8 [E, 2I, H/32], _bias BF16 [E, 2I]
//   MODULE.down_proj_blocks    U8 [E, H, I/32, 16],  _scales U8 [E, H, I/32],  _bias BF16 [E, H]
// Rows of gate_up are gate, up, gate, up .. when model_type is gpt_oss; the names alone do not say so, since other
// models saved with these names hold gate and up one after the other. E is each layer's own (pruned models).
// Source: openai/gpt-oss gpt_oss/torch/weights.py and model.py, transformers integrations/mxfp4.py.
#include <algorithm>

#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr std::string_view key = ".gate_up_proj_blocks";

/// The three tensors of one projection, checked: n rows of k columns in each of E experts.
struct Stacked {
  const Tensor *blocks = nullptr, *scales = nullptr, *bias = nullptr;
  int64_t experts = 0, n = 0, k = 0;
};

std::vector<int64_t> without_ones(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out;
  for (int64_t d : shape)
    if (d != 1) out.push_back(d);
  return out;
}

bool read_stacked(const Checkpoint& ck, const std::string& name, Stacked& s, Problems& problems) {
  s.blocks = ck.find(name + "_blocks");
  s.scales = ck.find(name + "_scales");
  s.bias = ck.find(name + "_bias");
  if (!s.blocks) return problems.error(printable(name + "_blocks"), "missing"), false;
  if (!s.scales) return problems.error(ck.where(*s.blocks), "no scales beside it ({}_scales expected)", name), false;
  const auto& b = s.blocks->shape;
  if (b.size() != 4 || b[3] * 2 != group)
    return problems.error(ck.where(*s.blocks), "{}, [experts, rows, columns/32, 16] expected",
                          describe(s.blocks->dtype, b)),
           false;
  s.experts = b[0], s.n = b[1];
  auto scales = s.scales->shape;
  if (scales.size() > 3) scales = without_ones(scales);
  if (scales.size() != 3 || scales[0] != s.experts)
    return problems.error(ck.where(*s.scales), "{}, [{}, {}, {}] expected", describe(s.scales->dtype, s.scales->shape),
                          b[0], b[1], b[2]),
           false;
  s.k = check_pair(ck, *s.blocks, {s.n, b[2] * b[3]}, *s.scales, {scales[1], scales[2]}, problems);
  if (s.bias && (s.bias->dtype != Dtype::BF16 || s.bias->shape != std::vector<int64_t>{s.experts, s.n}))
    return problems.error(ck.where(*s.bias), "{}, BF16 [{}, {}] expected", describe(s.bias->dtype, s.bias->shape),
                          s.experts, s.n),
           false;
  return s.k > 0;
}

/// Rows first, first + step, first + 2 step .. of expert e.
Proj rows_of(const Stacked& s, int64_t e, int64_t first, int64_t step) {
  const auto slice = [&](const Tensor* t, int64_t row_bytes) {
    const int64_t piece = s.n * row_bytes;
    return t ? Slice{t, e * piece, piece, first * row_bytes, step * row_bytes} : Slice{};
  };
  return {slice(s.blocks, s.k / 2), slice(s.scales, s.k / group * bits_of(s.scales->dtype) / 8), slice(s.bias, 2)};
}

void read_layer(const Checkpoint& ck, MoeLayer layer, bool pairs, Model& model, Problems& problems) {
  Stacked w13, w2;
  const bool read13 = read_stacked(ck, layer.module + ".gate_up_proj", w13, problems);
  const bool read2 = read_stacked(ck, layer.module + ".down_proj", w2, problems);
  const int64_t experts = router_rows(ck, layer, problems);
  if (!read13 || !read2) return;
  if (w13.n % 2 || w2.n != w13.k || w2.k * 2 != w13.n || w2.experts != w13.experts)
    return problems.error(ck.where(*w2.blocks), "{} does not fit gate_up's {}",
                          describe(w2.blocks->dtype, w2.blocks->shape), describe(w13.blocks->dtype, w13.blocks->shape));
  if (experts >= 0 && experts != w13.experts)
    return problems.error(ck.where(*w13.blocks), "{} experts, the router has {}", w13.experts, experts);
  if (!w13.bias != !w2.bias)
    return problems.error(printable(layer.module), "a bias on one projection only, on both or none expected");
  layer.hidden = w13.k, layer.intermediate = w2.k;
  model.bias = w13.bias != nullptr;
  for (int64_t e = 0; e < w13.experts; ++e)
    layer.experts.push_back({rows_of(w13, e, 0, pairs ? 2 : 1),
                             rows_of(w13, e, pairs ? 1 : layer.intermediate, pairs ? 2 : 1), rows_of(w2, e, 0, 1)});
  model.layers.push_back(std::move(layer));
}

bool matches(const Checkpoint& ck) {
  return config_string(ck.config, "model_type") == "gpt_oss" ||
         std::any_of(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& t) { return t.name.ends_with(key); });
}

void read_settings(const Checkpoint& ck, Model& model, Problems& problems) {
  model.activation = {"swigluoai", 1.702, 1, config_number(ck.config, "swiglu_limit", 7)};
  model.router.top_k =
      int64_t(config_number(ck.config, "num_experts_per_tok", config_number(ck.config, "experts_per_token", 0)));
  const Json* q = quantization_config(ck.config);
  const std::string method = q ? q->value("quant_method", "") : "";
  if (method != "mxfp4" && method != "quark")
    problems.error("config.json",
                   "quantization_config.quant_method is '{}', but the experts are MXFP4 ('mxfp4' expected)",
                   printable(method));
}

void read(const Checkpoint& ck, const ModelOptions& options, Model& model, Problems& problems) {
  const bool known = model.model_type == "gpt_oss";
  if (!known)
    problems.warn("config.json", "model_type '{}' is not known; read as GPT-OSS by its tensor names",
                  printable(model.model_type));
  model.pairs = options.gate_up.empty() ? known : options.gate_up == "interleaved";
  for (const Tensor& t : ck.tensors) {
    if (!t.name.ends_with(key)) continue;
    if (!known && options.gate_up.empty()) {
      problems.error(ck.where(t),
                     "the order of gate and up rows is not known for model_type '{}'; say "
                     "--gate-up interleaved or --gate-up concatenated",
                     printable(model.model_type));
      return;
    }
    MoeLayer layer;
    layer.module = t.name.substr(0, t.name.size() - key.size());
    if (!parse_layer(layer.module, layer.space, layer.index))
      problems.error(ck.where(t), "no layer number in the name");
    else
      read_layer(ck, std::move(layer), model.pairs, model, problems);
  }
  for (const Tensor& t : ck.tensors)
    if (t.name.ends_with("_proj_scales") && !ck.find(t.name.substr(0, t.name.size() - 6) + "blocks"))
      problems.error(ck.where(t), "scales without codes ({}blocks expected)", t.name.substr(0, t.name.size() - 6));
  if (model.layers.empty()) return;
  read_settings(ck, model, problems);
  check_config(ck, model, "num_local_experts", "hidden_size", "intermediate_size", problems);
}

}  // namespace

const Family gpt_oss = {"gpt-oss", matches, read};

}  // namespace mxfp4
