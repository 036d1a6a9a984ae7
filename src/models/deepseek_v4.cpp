// DeepSeek-V4 in its native names, with or without "model." in front: one tensor per expert and projection.
//   layers.N.ffn.experts.E.w1|w3.weight I8 [I, H/2] (gate, up), .w2.weight I8 [H, I/2] (down), .scale F8_E8M0 [n, k/32]
// mtp.M blocks hold experts of the same kind. `.scale` also belongs to block-FP8 weights: the dtype of the weight and
// the ratio of columns tell MXFP4, not the name, and a missing expert_dtype means nothing.
// Source: DeepSeek's inference/convert.py, SGLang and vLLM loaders (2026-08).
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames names = {"w1", "w3", "w2", "weight", "scale"};

bool matches(const Checkpoint& ck) {
  if (config_string(ck.config, "model_type") == "deepseek_v4") return true;
  ExpertName name;
  for (const Tensor& t : ck.tensors)
    if (parse_expert(t.name, name) && name.module.ends_with(".ffn.experts") && name.suffix == "scale") return true;
  return false;
}

void check_markers(const Checkpoint& ck, Problems& problems) {
  const std::string dtype = config_string(ck.config, "expert_dtype");
  if (!dtype.empty() && dtype != "fp4")
    problems.error("config.json", "expert_dtype is '{}', but the experts are MXFP4 ('fp4' expected)", printable(dtype));
  if (!quantization_config(ck.config))
    problems.error("config.json", "no quantization_config, but the experts are MXFP4");
}

void read(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (model.model_type != "deepseek_v4")
    problems.warn("config.json", "model_type '{}' is not known; read as DeepSeek-V4 by its tensor names",
                  printable(model.model_type));
  read_separate_experts(ck, names, model, problems);
  if (model.layers.empty()) return;
  model.activation.limit = config_number(ck.config, "swiglu_limit", 0);
  model.router = {config_string(ck.config, "scoring_func", "sqrtsoftplus"),
                  int64_t(config_number(ck.config, "num_experts_per_tok", 0)), true,
                  config_number(ck.config, "routed_scaling_factor", 1)};
  check_markers(ck, problems);
  check_config(ck, model, "n_routed_experts", "hidden_size", "moe_intermediate_size", problems);
}

}  // namespace

const Family deepseek_v4 = {"deepseek-v4", matches, read};

}  // namespace mxfp4
