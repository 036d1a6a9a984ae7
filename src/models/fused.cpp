// All experts of a layer in one tensor, gate and up together. vLLM's own parameters, as in a Gemma-4 release and
// Inkling:
//
//   MODULE.w13_weight U8 [E, 2I, H/2], .w13_weight_scale U8 [E, 2I, H/32], .w2_weight [E, H, I/2], .w2_weight_scale,
//   optional .w13_bias, .w2_bias
//
// Third-party DeepSeek-V4 has MODULE.w13.weight and .w13.scale. transformers' own names are MODULE.gate_up_proj and
// .down_proj, with suffixes of compressed-tensors or Quark; Granite's are MODULE.input_linear and .output_linear.
//
// Inkling stores rows in pairs, which engines take apart, so pairs in storage do not make Model::pairs. Its scales may
// be [E * 2I, H/32]. Source: vLLM 0.33.0 models/inkling/amd/moe.py (Quark) and nvidia/model.py (compressed-tensors'
// spellings), granitemoehybrid.py, fused_moe/routed_experts.py; llama.cpp #24738 (Gemma-4; the scales' names are
// inferred); loaders of DeepSeek-V4 conversions; transformers 5.24.0 (chunk(2) of gate_up_proj).
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr StackedNames spellings[] = {
    {".w13", ".w2", "_weight", "_weight_scale", "_bias"},
    {".w13", ".w2", "_weight", "_weight.scale", "_bias"},
    {".w13", ".w2", "_weight.weight_packed", "_weight.weight_scale", "_bias"},
    {".w13", ".w2", "_weight_packed", "_weight_scale", "_bias"},
    {".w13", ".w2", ".weight", ".scale", ".bias"},
    {".gate_up_proj", ".down_proj", ".weight_packed", ".weight_scale", ".bias"},
    {".gate_up_proj", ".down_proj", "_packed", "_scale", "_bias"},
    {".gate_up_proj", ".down_proj", ".weight", ".weight_scale", ".bias"},
    {".gate_up_proj", ".down_proj", "", "_weight_scale", "_bias"},
    {".gate_up_proj", ".down_proj", "", "_scale", "_bias"},
    {".input_linear", ".output_linear", ".weight", ".weight_scale", ".bias"},
    {".input_linear", ".output_linear", ".weight_packed", ".weight_scale", ".bias"},
};

/// Types whose engines split these rows into two halves.
const KnownOrders known = {.pairs = {"inkling_mm_model", "inkling_model"},
                           .halves = {"deepseek_v4", "deepseek_v41", "gemma4", "gemma4_text", "qwen3_moe", "qwen3_next",
                                      "qwen3_vl_moe", "qwen3_5_moe", "granitemoe", "afmoe", "granitemoehybrid",
                                      "glm4_moe", "deepseek_v3", "hy_v3", "granitemoeshared"}};

/// The module of w13's codes with scales beside them; empty for any other tensor.
std::string module_of_w13(const Checkpoint& ck, const Tensor& t, const StackedNames& names) {
  if (!is_code_dtype(t.dtype) || t.shape.size() < 3) return {};
  const std::string end = std::string(names.w13) + names.codes;
  if (!t.name.ends_with(end)) return {};
  const std::string module = t.name.substr(0, t.name.size() - end.size());
  const Tensor* scales = ck.find(module + names.w13 + names.scales);
  const bool has_groups = scales && !scales->shape.empty() && scales->dtype != Dtype::F8_E4M3;
  return has_groups && !ck.find(module + names.w13 + "_weight_scale_2") ? module : std::string();
}

/// The checkpoint's name of gate and up, such as "w13"; empty if it has no such layers.
std::string name_of_w13(const Checkpoint& ck) {
  for (const Tensor& t : ck.tensors)
    for (const StackedNames& names : spellings)
      if (!module_of_w13(ck, t, names).empty()) return names.w13 + 1;
  return {};
}

bool matches_fused(const Checkpoint& ck) { return !name_of_w13(ck).empty(); }

/// Takes the family of the same quant_method, whatever the tensors are called: engines choose kernels and pads by it.
void take_family(const Checkpoint& ck, Model& model) {
  const Json* q = quantization_config(ck.config);
  if (model.model_type.starts_with("deepseek_v4")) model.family = "deepseek-v4 fused";
  for (const Family& family : families)
    if (q && json_string(*q, "quant_method") == family.name) model.family = family.name, model.method = family.method;
}

void read_fused(const Checkpoint& ck, const ModelOptions& options, Model& model, Problems& problems) {
  take_family(ck, model);
  const bool pairs = stored_in_pairs(ck, options, known, name_of_w13(ck).c_str(), problems);
  for (const StackedNames& names : spellings)
    for (const Tensor& t : ck.tensors) {
      MoeLayer layer;
      layer.module = module_of_w13(ck, t, names);
      if (layer.module.empty()) continue;
      if (!parse_layer(layer.module, layer.kind, layer.index))
        problems.error(ck.where(t), "no layer number in the name");
      else
        read_stacked_layer(ck, names, std::move(layer), pairs, model, problems);
    }
  read_settings(ck, model, problems);
  check_config(ck, model, experts_key(ck.config), hidden_key(ck.config), intermediate_key(ck.config), problems);
}

}  // namespace

const Family fused = {"fused", matches_fused, read_fused};

}  // namespace mxfp4
