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

constexpr StackedNames names = {".gate_up_proj", ".down_proj", "_blocks", "_scales", "_bias"};

bool matches(const Checkpoint& ck) {
  return config_string(ck.config, "model_type") == "gpt_oss" ||
         std::any_of(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& t) { return t.name.ends_with(key); });
}

void read_config(const Checkpoint& ck, Model& model, Problems& problems) {
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
      read_stacked_layer(ck, names, std::move(layer), model.pairs, model, problems);
  }
  for (const Tensor& t : ck.tensors)
    if (t.name.ends_with("_proj_scales") && !ck.find(t.name.substr(0, t.name.size() - 6) + "blocks"))
      problems.error(ck.where(t), "scales without codes ({}blocks expected)", t.name.substr(0, t.name.size() - 6));
  if (model.layers.empty()) return;
  read_config(ck, model, problems);
  check_config(ck, model, "num_local_experts", "hidden_size", "intermediate_size", problems);
}

}  // namespace

const Family gpt_oss = {"gpt-oss", matches, read};

}  // namespace mxfp4
