// MLX: all experts of a layer in one tensor per projection, gate and up apart, codes in words of eight:
//
//   MODULE.gate_proj|up_proj|down_proj.weight U32 [E, n, k/8], .scales U8 [E, n, k/32], .bias BF16 [E, n]
//
// MODULE ends in .switch_mlp, in GPT-OSS in .experts. The words are little-endian, so their bytes are those of MXFP4.
// MLX's affine quantization has the same words, with BF16 scales and .biases. config.json's `quantization` says which
// of the two it is. MLX separates the gate and up rows of GPT-OSS; its engines need pairs. Source: mlx_lm
// models/gpt_oss.py (sanitize), utils.py.
#include <algorithm>
#include <set>

#include "src/base/log.h"
#include "src/models/families.h"
#include "src/models/router.h"

namespace mxfp4 {

namespace {

constexpr std::string_view marker = ".gate_proj.weight";

/// Words of codes, all experts in one tensor.
bool is_gate(const Tensor& t) { return t.dtype == Dtype::U32 && t.shape.size() == 3 && t.name.ends_with(marker); }

bool matches_mlx(const Checkpoint& ck) { return std::any_of(ck.tensors.begin(), ck.tensors.end(), is_gate); }

/// One projection of all experts. k is 0 if the projection is incomplete; a problem then gives the reason.
struct Words {
  const Tensor *codes = nullptr, *scales = nullptr, *bias = nullptr;
  int64_t n = 0, k = 0;

  Projection of(int64_t expert, int64_t experts) const {
    const auto slice = [&](const Tensor* t) {
      if (!t) return Slice{};
      const int64_t piece = t->bytes / experts;
      return Slice{{t, expert * piece, piece}, 0, piece / n};
    };
    return {slice(codes), slice(scales), slice(bias)};
  }
};

Words find_words(const Checkpoint& ck, const std::string& name, int64_t experts, Problems& problems) {
  Words w{ck.find(name + ".weight"), ck.find(name + ".scales"), ck.find(name + ".bias")};
  if (!w.codes || !w.scales || w.codes->dtype != Dtype::U32 || w.codes->shape.size() != 3 ||
      w.codes->shape[0] != experts || w.codes->bytes == 0)
    return problems.error(name, "incomplete: weight U32 [{}, rows, columns/8] and scales expected", experts), w;
  const int64_t n = w.codes->shape[1], k = w.codes->shape[2] * 8;
  if (w.scales->dtype != Dtype::U8 || w.scales->shape != std::vector<int64_t>{experts, n, k / group} || k % group)
    return problems.error(ck.where(*w.scales), "{}, U8 [{}, {}, {}] expected of mode mxfp4",
                          describe(w.scales->dtype, w.scales->shape), experts, n, k / group),
           w;
  if (w.bias && (w.bias->dtype != Dtype::BF16 || w.bias->shape != std::vector<int64_t>{experts, n}))
    return problems.error(ck.where(*w.bias), "{}, BF16 [{}, {}] expected", describe(w.bias->dtype, w.bias->shape),
                          experts, n),
           w;
  w.n = n;
  w.k = k;
  return w;
}

void read_layer(const Checkpoint& ck, MoeLayer layer, int64_t experts, Model& model, Problems& problems) {
  const auto words = [&](const char* proj) { return find_words(ck, layer.module + proj, experts, problems); };
  const Words gate = words(".gate_proj"), up = words(".up_proj"), down = words(".down_proj");
  const int64_t rows = routed_experts(ck, layer, experts, problems);
  if (!gate.k || !up.k || !down.k) return;
  if (up.n != gate.n || up.k != gate.k || down.n != gate.k || down.k != gate.n)
    return problems.error(layer.module, "gate {} x {}, up {} x {} and down {} x {} do not fit", gate.n, gate.k, up.n,
                          up.k, down.n, down.k);
  if (rows >= 0 && rows != experts)
    return problems.error(layer.module, "{}, the router has {}", counted(experts, "expert"), rows);
  const bool bias = gate.bias && up.bias && down.bias;
  if ((gate.bias || up.bias || down.bias) != bias || (!model.layers.empty() && bias != model.bias))
    return problems.error(layer.module, "a bias on some projections only, on all or none expected");
  model.bias = bias;
  layer.hidden = gate.k;
  layer.intermediate = gate.n;
  for (int64_t e = 0; e < experts; ++e)
    layer.experts.push_back({gate.of(e, experts), up.of(e, experts), down.of(e, experts)});
  model.layers.push_back(std::move(layer));
}

/// Tensors outside the experts that only MLX reads: "model.layers.0.mlp.router.weight and 3 more"; empty if none.
std::string other_words(const Checkpoint& ck, const std::set<std::string>& modules) {
  const Tensor* first = nullptr;
  int64_t count = 0;
  for (const Tensor& t : ck.tensors) {
    const std::string module = t.name.substr(0, t.name.rfind('.', t.name.rfind('.') - 1));
    if (t.dtype == Dtype::U32 && t.name.ends_with(".weight") && !modules.count(module) && count++ == 0) first = &t;
  }
  if (!first) return {};
  return printable(first->name) + (count > 1 ? fmt::format(" and {} more", count - 1) : "");
}

void check_mode(const Checkpoint& ck, Problems& problems) {
  for (const char* key : {"quantization", "quantization_config"})
    if (const auto q = ck.config.find(key);
        ck.config.is_object() && q != ck.config.end() && mentions(*q, "mode", "mxfp4"))
      return;
  problems.error(config_name, "quantization has no mode 'mxfp4': MLX's affine quantization is no MXFP4");
}

void read_mlx(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  check_mode(ck, problems);
  if (problems.any()) return;
  const bool gpt_oss = model.model_type == "gpt_oss";
  model.pairs = gpt_oss;
  std::set<std::string> modules;
  for (const Tensor& t : ck.tensors) {
    if (!is_gate(t)) continue;
    MoeLayer layer;
    layer.module = t.name.substr(0, t.name.size() - marker.size());
    modules.insert(layer.module);
    if (t.shape[0] > max_experts)
      problems.error(ck.where(t), "{} experts, at most {} expected", t.shape[0], max_experts);
    else if (t.shape[0] < 1 || !parse_layer(layer.module, layer.kind, layer.index))
      problems.error(ck.where(t), "no layer number in the name, or no experts");
    else if (has_room(model, layer.module, t.shape[0], problems))
      read_layer(ck, std::move(layer), t.shape[0], model, problems);
  }
  if (model.layers.empty()) return;
  read_settings(ck, model, problems);
  if (gpt_oss) model.activation = {"swigluoai", 1.702, 1, config_number(ck.config, "swiglu_limit", 7)};
  check_config(ck, model, experts_key(ck.config), "hidden_size",
               gpt_oss ? "intermediate_size" : intermediate_key(ck.config), problems);
  if (const std::string others = other_words(ck, modules); !others.empty())
    model.notes.push_back("quantised as only MLX reads it, not vLLM and SGLang: " + others);
}

}  // namespace

const Family mlx = {"mlx", matches_mlx, read_mlx};

}  // namespace mxfp4
