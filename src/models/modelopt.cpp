// NVIDIA ModelOpt's MXFP4 and W4A8_MXFP4_FP8: MODULE.E.gate_proj|up_proj|down_proj.weight U8 [n, k/2], .weight_scale U8
// [n, k/32]. The algorithm is in quantization_config; older releases write it to hf_quant_config.json beside the
// config. Any checkpoint with these tensors and no other marker is read as ModelOpt's. Source: Model-Optimizer
// export/quant_utils.py, convert_hf_config.py.
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames modelopt_names = {"gate_proj", "up_proj", "down_proj", "weight", "weight_scale"};

bool matches_modelopt(const Checkpoint& ck) { return has_expert_suffix(ck, "weight_scale"); }

constexpr const char* separate_config = "hf_quant_config.json";

/// Whether there is no algorithm, or an MXFP4 algorithm somewhere: mixed precision has one for each module.
bool is_modelopt_mxfp4(const Json& q) {
  return !has_key(q, "quant_algo") || mentions(q, "quant_algo", "W4A8_MXFP4_FP8") ||
         mentions(q, "quant_algo", "mxfp4") || mentions(q, "quant_algo", "MXFP4");
}

void check_algorithm(const Checkpoint& ck, Problems& problems) {
  const char* complaint = "quant_algo is no MXFP4, but the experts are";
  if (const Json* q = quantization_config(ck.config)) {
    if (!is_modelopt_mxfp4(*q)) problems.error(config_name, "{}", complaint);
  } else if (const auto separate = read_companion(ck, separate_config)) {
    if (!is_modelopt_mxfp4(*separate)) problems.error(separate_config, "{}", complaint);
  }
}

void read_modelopt(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (read_spelled_experts(ck, modelopt_names, model, problems)) check_algorithm(ck, problems);
}

}  // namespace

const Family modelopt = {"modelopt", matches_modelopt, read_modelopt};

}  // namespace mxfp4
