// Kimi-K3 under compressed-tensors' names: w1 (gate), w3 (up), w2 (down) below language_model and block_sparse_moe. Its
// experts read a latent vector of routed_expert_hidden_size. Their activation is "situ". All keys are in text_config.
// Source: the published config and headers (2026).
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames kimi_k3_names = {"w1", "w3", "w2", "weight_packed", "weight_scale"};

bool matches_kimi_k3(const Checkpoint& ck) {
  return config_string(ck.config, "model_type") == "kimi_k3" && has_expert_suffix(ck, kimi_k3_names.codes);
}

void read_kimi_k3(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (read_spelled_experts(ck, kimi_k3_names, model, problems)) check_compressed_tensors(ck, model, problems);
}

}  // namespace

const Family kimi_k3 = {"kimi-k3", matches_kimi_k3, read_kimi_k3};

}  // namespace mxfp4
