// DeepSeek-V4 and V4.1, one tensor per expert and projection, with or without "model." in front:
//
//   layers.N.ffn.experts.E.w1|w3.weight I8 [I, H/2] (gate, up), .w2.weight I8 [H, I/2] (down), .scale F8_E8M0 [n, k/32]
//
// or in Hugging Face's names, layers.N.mlp.experts.E.gate_proj|up_proj|down_proj, or Quark's with .weight_scale. mtp.M
// blocks have experts of the same form. Those of V4.1 have their own number of experts, and its config nests the text
// model's keys. `.scale` also belongs to block-FP8 weights: MXFP4 is recognised by the weight's dtype and the ratio of
// columns, not by the name. A missing expert_dtype means nothing. Source: DeepSeek's inference/convert.py, SGLang and
// vLLM loaders (2026-08).
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames deepseek_v4_names = {"w1", "w3", "w2", "weight", "scale"};

bool matches_deepseek_v4(const Checkpoint& ck) {
  if (config_string(ck.config, "model_type") == "deepseek_v4") return true;
  ExpertName name;
  for (const Tensor& t : ck.tensors)
    if (parse_expert(t.name, name) && name.module.ends_with(".ffn.experts") && name.suffix == "scale") return true;
  return false;
}

bool is_v41(const Checkpoint& ck) { return config_string(ck.config, "model_type") == "deepseek_v41"; }

void check_markers(const Checkpoint& ck, Problems& problems) {
  const Json* q = quantization_config(ck.config);
  if (!q) return problems.error(config_name, "no quantization_config, but the experts are MXFP4");
  const std::string dtype = config_string(ck.config, "expert_dtype", json_string(*q, "expert_dtype"));
  if (!dtype.empty() && dtype != "fp4")
    problems.error(config_name, "expert_dtype is '{}', but the experts are MXFP4 ('fp4' expected)", dtype);
}

void read_deepseek_v4(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (!model.model_type.starts_with("deepseek_v4"))
    problems.warn(config_name, "model_type '{}' is not known; read as DeepSeek-V4 by its tensor names",
                  model.model_type);
  if (!read_spelled_experts(ck, deepseek_v4_names, model, problems)) return;
  model.activation.name = "silu";
  model.router.scoring = config_string(ck.config, "scoring_func", "sqrtsoftplus");
  check_markers(ck, problems);
}

}  // namespace

const Family deepseek_v4 = {"deepseek-v4", matches_deepseek_v4, read_deepseek_v4};
const Family deepseek_v41 = {"deepseek-v4.1", is_v41, read_deepseek_v4};

}  // namespace mxfp4
