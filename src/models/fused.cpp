// Experts as an engine holds them, gate and up in one tensor of all experts, rows of gate before those of up. vLLM's
// own parameters, as in a Gemma-4 release:
//
//   MODULE.w13_weight U8 [E, 2I, H/2], .w13_weight_scale [E, 2I, H/32], .w2_weight [E, H, I/2], .w2_weight_scale,
//   optional .w13_bias, .w2_bias
//
// Third-party DeepSeek-V4:
//
//   MODULE.w13.weight, .w13.scale, .w2.weight, .w2.scale
//
// Other model types have the same names with rows in pairs, for example Inkling, whose config says so. Source:
// llama.cpp #24738 (the scales' names are inferred), loaders of DeepSeek-V4 conversions, vLLM models/inkling.
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr StackedNames spellings[] = {{".w13", ".w2", "_weight", "_weight_scale", "_bias"},
                                      {".w13", ".w2", ".weight", ".scale", ".bias"}};

bool is_w13(const Tensor& t, const StackedNames& names) {
  return is_code_dtype(t.dtype) && t.shape.size() > 2 && t.name.ends_with(std::string(names.w13) + names.codes);
}

bool matches(const Checkpoint& ck) {
  for (const Tensor& t : ck.tensors)
    for (const StackedNames& names : spellings)
      if (is_w13(t, names)) return true;
  return false;
}

void read(const Checkpoint& ck, const ModelOptions& options, Model& model, Problems& problems) {
  if (model.model_type.starts_with("deepseek_v4")) model.family = "deepseek-v4 fused";
  const KnownOrders known{.pairs = {}, .halves = {"deepseek_v4", "deepseek_v41", "gemma4", "gemma4_text"}};
  const auto pairs = stored_in_pairs(ck, options, known, "w13", problems);
  if (!pairs) return;
  model.pairs = *pairs;
  for (const StackedNames& names : spellings)
    for (const Tensor& t : ck.tensors) {
      if (!is_w13(t, names)) continue;
      MoeLayer layer;
      layer.module = t.name.substr(0, t.name.size() - std::string_view(names.codes).size() - 4);
      if (!parse_layer(layer.module, layer.kind, layer.index))
        problems.error(ck.where(t), "no layer number in the name");
      else
        read_stacked_layer(ck, names, std::move(layer), model.pairs, model, problems);
    }
  if (model.layers.empty()) return;
  read_settings(ck, model, problems);
  check_config(ck, model, experts_key(ck.config), "hidden_size", intermediate_key(ck.config), problems);
}

}  // namespace

const Family fused = {"fused", matches, read};

}  // namespace mxfp4
