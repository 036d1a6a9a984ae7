// GPT-OSS as on Hugging Face: all experts of a layer in one tensor, no dot before blocks, scales and bias.
//
//   MODULE.gate_up_proj_blocks U8 [E, 2I, H/32, 16], _scales U8 [E, 2I, H/32], _bias BF16 [E, 2I]
//   MODULE.down_proj_blocks    U8 [E, H, I/32, 16],  _scales U8 [E, H, I/32],  _bias BF16 [E, H]
//
// Rows of gate_up are gate, up, gate, up .. if model_type is gpt_oss. The names alone do not say so: other models saved
// with these names have all rows of gate before those of up. E may differ between layers (pruned models). Source:
// openai/gpt-oss gpt_oss/torch/weights.py and model.py, transformers integrations/mxfp4.py.
//
// OpenAI's privacy filter (openai_privacy_filter) has pairs, too, but its gate_up_proj_bias is gate's, then up's.
// Source: vLLM 0.33.0 openai_privacy_filter.py, which loads it if quant_method is gpt_oss_mxfp4, and fails for mxfp4.
#include <algorithm>
#include <set>

#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr StackedNames gpt_oss_names = {".gate_up_proj", ".down_proj", "_blocks", "_scales", "_bias"};
constexpr StackedNames names_of_filter = {".gate_up_proj", ".down_proj", "_blocks", "_scales", "_bias", true};

/// The module of a name "MODULE.gate_up_proj_blocks" or of another of the four; empty for any other.
std::string_view module_of(std::string_view name) {
  for (const char* proj : {gpt_oss_names.w13, gpt_oss_names.w2})
    for (const char* part : {gpt_oss_names.codes, gpt_oss_names.scales})
      if (const std::string suffix = std::string(proj) + part; name.ends_with(suffix))
        return name.substr(0, name.size() - suffix.size());
  return {};
}

bool matches_gpt_oss(const Checkpoint& ck) {
  return config_string(ck.config, "model_type") == "gpt_oss" ||
         std::any_of(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& t) { return !module_of(t.name).empty(); });
}

void read_config(const Checkpoint& ck, Model& model, Problems& problems) {
  check_config_types(
      ck.config,
      {{"model_type"},
       {"swiglu_limit"},
       {"num_experts_per_tok", "experts_per_token", "num_local_experts", "hidden_size", "intermediate_size"}},
      problems);
  model.activation = {"swigluoai", 1.702, 1, config_number(ck.config, "swiglu_limit", 7)};
  model.router.top_k = config_count(ck.config, "num_experts_per_tok", config_count(ck.config, "experts_per_token", 0));
  const Json* q = quantization_config(ck.config);
  const std::string method = q ? json_string(*q, "quant_method") : "";
  if (method != "mxfp4" && method != "gpt_oss_mxfp4" && method != "quark")
    problems.error(config_name,
                   "quantization_config.quant_method is '{}', but the experts are MXFP4 ('mxfp4' expected)", method);
}

void read_gpt_oss(const Checkpoint& ck, const ModelOptions& options, Model& model, Problems& problems) {
  std::set<std::string_view> modules;
  for (const Tensor& t : ck.tensors)
    if (const std::string_view module = module_of(t.name); !module.empty()) modules.insert(module);
  if (modules.empty()) return;
  const KnownOrders known{.pairs = {"gpt_oss", "openai_privacy_filter"}, .halves = {}};
  model.pairs = stored_in_pairs(ck, options, known, "*_blocks", problems);
  if (std::find(known.pairs.begin(), known.pairs.end(), model.model_type) == known.pairs.end())
    problems.warn(config_name, "model_type '{}' is not known; read as GPT-OSS by its tensor names", model.model_type);
  for (const std::string_view module : modules) {
    MoeLayer layer;
    layer.module = module;
    if (!parse_layer(layer.module, layer.kind, layer.index))
      problems.error(layer.module, "no layer number in the name");
    else
      read_stacked_layer(ck, model.model_type == "openai_privacy_filter" ? names_of_filter : gpt_oss_names,
                         std::move(layer), model.pairs, model, problems);
  }
  read_config(ck, model, problems);
  check_config(ck, model, "num_local_experts", "hidden_size", "intermediate_size", problems);
}

}  // namespace

const Family gpt_oss = {"gpt-oss", matches_gpt_oss, read_gpt_oss};

}  // namespace mxfp4
