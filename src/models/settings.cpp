// Settings of the config that all families read in the same way.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "src/models/families.h"

namespace mxfp4 {

namespace {

/// Reads the activation. GPT-OSS's formula on halves, as in MiniMax-M3, has vLLM's name.
Activation read_activation(const Json& config, bool pairs) {
  const std::string name = config_string(config, "hidden_act", "silu");
  if (name != "swigluoai") return {.name = name, .limit = config_number(config, "swiglu_limit", 0)};
  return {.name = pairs ? name : "swigluoai_uninterleave",
          .alpha = config_number(config, "swiglu_alpha", 1.702),
          .beta = config_number(config, "swiglu_beta", 1),
          .limit = config_number(config, "swiglu_limit", 7)};
}

/// Whether `json` says `key` is true somewhere, at any depth.
bool says(const Json& json, const char* key) {
  if (json.is_object())
    if (const auto it = json.find(key); it != json.end() && it->is_boolean()) return it->get<bool>();
  return json.is_structured() &&
         std::any_of(json.begin(), json.end(), [&](const Json& child) { return says(child, key); });
}

/// Configs of vLLM's own classes say so, transformers' do not.
bool has_norm_behind_experts(const Checkpoint& ck) {
  return says(ck.config, "use_post_expert_norm") ||
         std::any_of(ck.tensors.begin(), ck.tensors.end(),
                     [](const Tensor& t) { return t.name.find(".post_expert_norm.") != t.name.npos; });
}

/// The number of experts to which the router sends each token.
int64_t chosen_experts(const Json& config) {
  for (const char* key : {"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k",
                          "top_k_experts", "moe_k"})
    if (const int64_t k = config_count(config, key, 0); k > 0) return k;
  return 0;
}

}  // namespace

void read_settings(const Checkpoint& ck, Model& model, Problems& problems) {
  check_config_types(ck.config,
                     {{"model_type", "hidden_act", "scoring_func", "expert_dtype"},
                      {"swiglu_alpha", "swiglu_beta", "swiglu_limit", "routed_scaling_factor"},
                      {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "n_routed_experts",
                       "num_experts", "num_local_experts", "hidden_size", "intermediate_size", "moe_intermediate_size",
                       "expert_ffn_hidden_size", "expert_hidden_dim"}},
                     problems);
  if (const double scaling = config_number(ck.config, "routed_scaling_factor", 1);
      scaling == 0 && !std::signbit(scaling))
    problems.error(config_name,
                   "routed_scaling_factor is 0, which makes every output 0; a number from 2^-20 to 2^20 expected");
  model.activation = read_activation(ck.config, model.pairs);
  if (has_norm_behind_experts(ck))
    model.notes.emplace_back("a norm follows each expert; verify computes experts without it");
  model.router = {config_string(ck.config, "scoring_func", "softmax"), chosen_experts(ck.config), true,
                  config_number(ck.config, "routed_scaling_factor", 1)};
}

bool stored_in_pairs(const Checkpoint& ck, const ModelOptions& options, const KnownOrders& known, const char* tensors,
                     Problems& problems) {
  constexpr const char* key = "inference_moe_w13_interleaved";  // of Inkling
  const std::optional<bool> says = config_flag(ck.config, key);
  const std::optional<bool> given = options.gate_up.empty() ? says : options.gate_up == "interleaved";
  const std::string type = config_string(ck.config, "model_type");
  const auto has_type = [&](const std::vector<std::string_view>& types) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  if (says && *given != *says)
    problems.error(config_name, "{} is {}, but --gate-up is {}", key, *says, options.gate_up);
  else if (has_type(known.pairs) && given == false)
    problems.error(config_name, "gate and up rows of model_type '{}' are interleaved, but {}", type,
                   says ? fmt::format("{} is false", key) : "--gate-up is concatenated");
  else if (has_type(known.halves) && given == true)
    problems.error(config_name, "gate and up rows of model_type '{}' are concatenated, but {}", type,
                   says ? fmt::format("{} is true", key) : "--gate-up is interleaved");
  if (given) return *given;
  if (has_type(known.pairs)) return true;
  if (has_type(known.halves)) return false;
  problems.error(config_name,
                 "model_type '{}' does not say the order of gate and up rows in {}; use --gate-up interleaved or "
                 "--gate-up concatenated",
                 type, tensors);
  return false;
}

const char* experts_key(const Json& config) {
  for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"})
    if (config_number(config, key, -1) >= 0) return key;
  return nullptr;
}

const char* hidden_key(const Json& config) {
  for (const char* key : {"moe_hidden_size", "routed_expert_hidden_size"})
    if (config_number(config, key, -1) >= 0) return key;
  return "hidden_size";
}

const char* intermediate_key(const Json& config) {
  for (const char* key :
       {"moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim", "expert_intermediate_size"})
    if (config_number(config, key, -1) >= 0) return key;
  const bool is_of_experts = config_number(config, "dense_intermediate_size", -1) >= 0 ||
                             config_string(config, "model_type").starts_with("granitemoe");
  return is_of_experts ? "intermediate_size" : nullptr;
}

std::optional<Json> read_companion(const Checkpoint& ck, const std::string& name) {
  const bool listed = std::find(ck.companions.begin(), ck.companions.end(), name) != ck.companions.end();
  if (!listed || !ck.companion_files.contains(name)) return std::nullopt;
  return parse_json(companion_text(ck, name), name);
}

bool has_key(const Json& json, const std::string& key) {
  if (json.is_object() && json.contains(key)) return true;
  return json.is_structured() &&
         std::any_of(json.begin(), json.end(), [&](const Json& child) { return has_key(child, key); });
}

bool mentions(const Json& json, std::string_view key, std::string_view text) {
  if (json.is_object())
    for (const auto& [name, value] : json.items())
      if (name == key && value.is_string() && value.get_ref<const std::string&>() == text) return true;
  return json.is_structured() &&
         std::any_of(json.begin(), json.end(), [&](const Json& child) { return mentions(child, key, text); });
}

}  // namespace mxfp4
