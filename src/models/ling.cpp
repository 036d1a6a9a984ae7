// Ling (BailingMoeV3): MODULE.E.gate_proj|up_proj|down_proj.weight [n, k/2], .weight_scale_inv [n, k/32]; the config
// calls itself fp8 and says routed_experts_quant_method "mxfp4". Other linears are block FP8 and have scales of the
// same name. Source: vLLM 0.33.0 bailing_moe_v3.py and SGLang 0.5.23 model_config.py.
#include "src/models/families.h"
#include "src/models/layer_limits.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames ling_names = {"gate_proj", "up_proj", "down_proj", "weight", "weight_scale_inv"};

bool matches_ling(const Checkpoint& ck) {
  const Json* q = quantization_config(ck.config);
  return q && json_string(*q, "routed_experts_quant_method") == "mxfp4" &&
         !config_string(ck.config, "model_type").starts_with("deepseek_v4");
}

void read_ling(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  read_spelled_experts(ck, ling_names, model, problems);
  model.router.scoring = config_string(ck.config, "score_function", "sigmoid");
}

}  // namespace

const Family ling = {"ling", matches_ling, read_ling};

LayerLimits layer_limits(const Json& config) {
  LayerLimits limits;
  const auto list = config.find(limits.key);
  if (list == config.end() || !list->is_array()) return limits;
  for (size_t layer = 0; layer < list->size(); ++layer)
    if (const Json& limit = (*list)[layer]; limit.is_number() && limit > 0) limits.layers.push_back(int64_t(layer));
  return limits;
}

}  // namespace mxfp4
