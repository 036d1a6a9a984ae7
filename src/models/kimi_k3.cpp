// Kimi-K3 under compressed-tensors' names: w1 (gate), w3 (up), w2 (down) below language_model and block_sparse_moe. Its
// experts read a latent vector of routed_expert_hidden_size. Their activation is "situ". All keys are in text_config.
// Source: the published config and headers (2026).
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames names = {"w1", "w3", "w2", "weight_packed", "weight_scale"};

bool matches(const Checkpoint& ck) {
  return config_string(ck.config, "model_type") == "kimi_k3" && has_expert_suffix(ck, names.codes);
}

void read(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  read_spelled_experts(ck, names, model, problems);
  check_compressed_tensors(ck, model, problems);
}

}  // namespace

const Family kimi_k3 = {"kimi-k3", matches, read};

}  // namespace mxfp4
