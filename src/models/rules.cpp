// What a config or a model type says of each layer.
#include <algorithm>

#include "src/base/log.h"
#include "src/models/complete.h"

namespace mxfp4 {

namespace {

/// Each layer that has a part of `if_any` has all of `parts`. Lists have '|' between alternatives, and '&' between
/// lists of which each must hold. A name is how parts begin, or behind a star what they contain.
struct Demand {
  const char* types;  // how model types begin; behind a '!' those that are meant not to; empty: any
  const char* when;   // conditions with '&' between them. KEY: neither 0 nor false nor null; KEY=V, KEY!=V: of the
                      // layer, if KEY is a list for each layer; layer<KEY, layer>=KEY; empty: always
  const char* if_any;
  std::vector<const char*> parts;
};

constexpr const char* shared_experts = "*shared_expert|*shared_mlp|*share_expert";
constexpr const char* router_bias = "*e_score_correction_bias|*expert_bias|*gate.bias|*router.bias|*tid2eid";

constexpr const char* gated_types =
    "qwen2|qwen3|gemma4|glm4_moe|glm_moe|glm5|deepseek_v2|deepseek_v3|kimi|minimax|mimo|bailing|llama|mixtral";

const Demand rules[] = {
    {"gpt_oss|openai_privacy_filter",
     "",
     "mlp.experts",
     {"self_attn.q_proj.weight|self_attn.qkv", "self_attn.k_proj.weight|self_attn.qkv",
      "self_attn.v_proj.weight|self_attn.qkv", "self_attn.q_proj.bias|self_attn.qkv",
      "self_attn.k_proj.bias|self_attn.qkv", "self_attn.v_proj.bias|self_attn.qkv", "self_attn.o_proj.weight",
      "self_attn.o_proj.bias", "self_attn.sinks", "input_layernorm.weight", "post_attention_layernorm.weight",
      "mlp.router.weight", "mlp.router.bias",
      "mlp.experts.gate_up_proj_bias|mlp.experts.*.gate_up_proj.bias|mlp.experts.gate_proj.bias|mlp.experts.gate_up_"
      "proj.bias",
      "mlp.experts.down_proj_bias|mlp.experts.*.down_proj.bias|mlp.experts.down_proj.bias"}},
    {"deepseek_v4", "", "attn_norm|ffn_norm|attn.|ffn.", {"attn_norm.weight", "ffn_norm.weight"}},
    {"deepseek_v4",
     "",
     "attn.",
     {"attn.wq_a.", "attn.wq_b.", "attn.wkv.", "attn.wo_a.", "attn.wo_b.", "attn.q_norm.", "attn.kv_norm.",
      "attn.attn_sink", "hc_attn_fn", "hc_attn_base", "hc_attn_scale", "hc_ffn_fn", "hc_ffn_base", "hc_ffn_scale"}},
    {"deepseek_v4", "", "hc_attn_fn", {"attn.wq_a.|self_attn."}},
    {"deepseek_v4",
     "",
     "hc_ffn_fn",
     {"ffn.experts.|mlp.experts.", "ffn.gate.weight|mlp.gate.weight",
      "ffn.shared_experts.w1.|mlp.shared_experts.gate_proj.", "ffn.shared_experts.w2.|mlp.shared_experts.down_proj.",
      "ffn.shared_experts.w3.|mlp.shared_experts.up_proj."}},
    {"deepseek_v41", "", "ffn_norm", {"ffn.experts."}},
    {"deepseek_v4",
     "compress_ratios!=0",
     "attn.",
     {"attn.compressor.ape", "attn.compressor.norm.", "attn.compressor.wgate.", "attn.compressor.wkv."}},
    {"deepseek_v4",
     "compress_ratios=4",
     "attn.",
     {"attn.indexer.compressor.ape", "attn.indexer.compressor.norm.", "attn.indexer.compressor.wgate.",
      "attn.indexer.compressor.wkv.", "attn.indexer.weights_proj.", "attn.indexer.wq_b."}},
    {"deepseek_v4", "layer<num_hash_layers", "ffn.", {"ffn.gate.tid2eid"}},
    {"deepseek_v4", "layer>=num_hash_layers", "ffn.", {"ffn.gate.bias"}},
    {"deepseek_v4", "", "ffn.", {"ffn.gate.bias|ffn.gate.tid2eid"}},
    {"deepseek_v4",
     "",
     "e_proj.|h_proj.|enorm.|hnorm.",
     {"e_proj.", "h_proj.", "enorm.", "hnorm.", "norm.", "hc_head_base", "hc_head_fn", "hc_head_scale"}},
    {"deepseek_v4", "", "main_proj.|main_norm.", {"main_proj.", "main_norm."}},  // DSpark's first stage
    {"deepseek_v4",
     "",
     "markov_head.markov_w",  // its last stage
     {"norm.", "hc_head_base", "hc_head_fn", "hc_head_scale", "markov_head.markov_w1.", "markov_head.markov_w2.",
      "confidence_head."}},
    {"deepseek_v41", "", "markov_head.embed.|markov_head.head.", {"norm.", "markov_head.embed.", "markov_head.head."}},
    {"", "topk_method=noaux_tc", "*experts.", {router_bias}},
    {"", "use_routing_bias", "*experts.", {router_bias}},
    {"", "moe_router_enable_expert_bias", "*experts.", {router_bias}},
    {"deepseek_v3|kimi|glm4_moe|glm_moe|glm5|mimo_v2|minimax_m2|minimax_m3|bailing_hybrid|bailing_moe_v2|longcat",
     "",
     "*experts.",
     {router_bias}},
    {"", "n_shared_experts", "*experts.|*switch_mlp.&*attn.|*attention.", {shared_experts}},
    {"", "num_shared_experts", "*experts.|*switch_mlp.&*attn.|*attention.", {shared_experts}},
    {"", "moe_num_shared_experts", "*experts.|*switch_mlp.&*attn.|*attention.", {shared_experts}},
    {"glm|kimi_linear|kimi_k3|bailing|minimax|ernie", "n_shared_experts", "*experts.", {shared_experts}},
    {"glm|kimi_linear|kimi_k3|bailing|minimax|ernie", "num_shared_experts", "*experts.", {shared_experts}},
    {"", "shared_expert_intermediate_size", "*experts.", {"*shared_expert."}},
    {"", "shared_intermediate_size", "*experts.|*moe.", {shared_experts}},
    {"llama4", "", "feed_forward.experts.|feed_forward.router.", {"feed_forward.shared_expert."}},
    {"", "", "*experts.gate_up_proj", {"*experts.down_proj"}},
    {"", "hidden_act=silu", "mlp.up_proj.", {"mlp.gate_proj.", "mlp.down_proj."}},
    {"!nemotron", "hidden_act=silu", "*experts.*.up_proj.", {"*experts.*.gate_proj.", "*experts.*.down_proj."}},
    {"!nemotron", "hidden_act=silu", "*shared_experts.up_proj.", {"*shared_experts.gate_proj."}},
    {"!nemotron", "hidden_act=silu", "*shared_expert.up_proj.", {"*shared_expert.gate_proj."}},
    {gated_types, "", "mlp.up_proj.", {"mlp.gate_proj."}},
    {gated_types, "", "*shared_experts.up_proj.", {"*shared_experts.gate_proj."}},
    {gated_types, "", "*shared_expert.up_proj.", {"*shared_expert.gate_proj."}},
    {"", "hidden_act=silu", "*.*.w1.", {"*.*.w3.", "*.*.w2."}},
    {"", "attention_bias=true", "*k_proj.weight", {"*k_proj.bias"}},
    {"", "attention_bias=true", "*.q_proj.weight&*.k_proj.weight", {"*.q_proj.bias", "*.v_proj.bias"}},
    {"phimoe", "", "input_layernorm.", {"input_layernorm.bias", "post_attention_layernorm.bias"}},
    {"phimoe", "attention_bias=true", "self_attn.o_proj.", {"self_attn.o_proj.bias"}},
    {"mimo_v2", "add_swa_attention_sink_bias&hybrid_layer_pattern=1", "self_attn.", {"self_attn.attention_sink_bias"}},
    {"mimo_v2", "add_full_attention_sink_bias&hybrid_layer_pattern=0", "self_attn.", {"self_attn.attention_sink_bias"}},
    {"!llama", "use_qk_norm", "*k_proj.", {"*q_norm|*k_norm|*layernorm|*qk_norm|*query_norm|*q_ln"}},
    {"",
     "routed_expert_hidden_size",
     "*experts.",
     {"*routed_expert_down_proj", "*routed_expert_norm", "*routed_expert_up_proj"}},
    {"qwen2|qwen3|glm4_moe|glm_moe|glm5|deepseek_v2|deepseek_v3|kimi|minimax|mimo|gpt_oss|llama|mistral|mixtral|"
     "bailing|ernie|"
     "granitemoe|olmoe|phimoe|aria|longcat",
     "",
     "self_attn.|linear_attn.|mlp.|mlps.|block_sparse_moe.|input_layernorm|post_attention_layernorm",
     {"input_layernorm", "post_attention_layernorm|pre_mlp_layernorm"}},
    {"!cohere|falcon",
     "",
     "*experts.&input_layernorm",
     {"post_attention_layernorm|pre_ff_layernorm|pre_feedforward_layernorm|pre_mlp_layernorm"}},
    {"", "", "*experts.&post_attention_layernorm", {"input_layernorm|post_feedforward_layernorm|post_mlp_layernorm"}},
    {"qwen2_moe|qwen3_next|qwen3_5_moe", "", "mlp.shared_expert.", {"mlp.shared_expert_gate."}},
    {"qwen3_next|qwen3_5",
     "",
     "linear_attn.",
     {"linear_attn.A_log", "linear_attn.dt_bias", "linear_attn.conv1d.", "linear_attn.norm.", "linear_attn.out_proj.",
      "linear_attn.in_proj_qkv"}},
    {"qwen3_next", "", "linear_attn.", {"linear_attn.in_proj_ba.", "linear_attn.in_proj_qkvz."}},
    {"qwen3_5",
     "",
     "linear_attn.",
     {"linear_attn.in_proj_ba.|linear_attn.in_proj_a.", "linear_attn.in_proj_ba.|linear_attn.in_proj_b.",
      "linear_attn.in_proj_qkvz.|linear_attn.in_proj_z."}},
    {"minimax",
     "",
     "self_attn.output_gate.|self_attn.out_proj.",
     {"self_attn.qkv_proj.", "self_attn.out_proj.", "self_attn.output_gate.", "self_attn.norm."}},
    {"minimax", "", "self_attn.q_proj.&self_attn.k_proj.", {"self_attn.o_proj."}},
    {"glm4_moe|minimax_m2", "use_qk_norm", "self_attn.k_proj.", {"self_attn.q_norm.", "self_attn.k_norm."}},
    {"olmoe", "", "self_attn.k_proj.", {"self_attn.q_norm.", "self_attn.k_norm."}},
    {"glm4_moe|glm_moe|glm5|deepseek_v3", "", "eh_proj.", {"shared_head.norm."}},
    {"glm_moe|deepseek_v3",
     "",
     "self_attn.indexer.",
     {"self_attn.indexer.wq_b.", "self_attn.indexer.wk.", "self_attn.indexer.k_norm.weight",
      "self_attn.indexer.k_norm.bias", "self_attn.indexer.weights_proj."}},
    {"muse_spark",
     "",
     "mlp.experts.|post_attention_residual_gate.",
     {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj.", "self_attn.o_proj.", "self_attn.gate_proj.",
      "mlp.gate.weight", "mlp.pre_expert_proj.", "mlp.pre_expert_norm.", "mlp.post_expert_proj.",
      "mlp.experts.post_expert_norm.", "mlp.gate.e_score_correction_bias", "input_layernorm",
      "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
      "post_attention_residual_gate", "post_feedforward_residual_gate"}},
    {"afmoe",
     "",
     "self_attn.",
     {"input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm", "self_attn.gate_proj.",
      "self_attn.q_norm.", "self_attn.k_norm."}},
    {"afmoe", "", "mlp.experts.", {"mlp.expert_bias"}},
    {"gemma4",
     "",
     "self_attn.",
     {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm.", "post_feedforward_layernorm.",
      "layer_scalar"}},
    {"gemma4",
     "",
     "router.proj.",
     {"router.scale", "router.per_expert_scale", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_1",
      "post_feedforward_layernorm_2"}},
    {"inkling",
     "",
     "attn.wq_du.|attn.wo_ud.",
     {"attn_norm.", "mlp_norm.", "attn.wq_du.", "attn.wk_dv.", "attn.wv_dv.", "attn.wr_du.", "attn.wo_ud.",
      "attn.q_norm.", "attn.k_norm."}},
    {"inkling", "", "mlp.gate.bias|mlp.gate.global_scale", {"mlp.gate.bias", "mlp.gate.global_scale"}},
    {"", "", "*shared_w13_weight|*shared_w2_weight", {"*shared_w13_weight", "*shared_w2_weight"}},
    {"granitemoehybrid|bamba|falcon_h1|jamba",
     "",
     "mamba.",
     {"mamba.A_log", "mamba.D", "mamba.conv1d.", "mamba.in_proj.", "mamba.out_proj.", "mamba.dt_bias|mamba.dt_proj."}},
    {"granitemoehybrid|bamba", "", "mamba.", {"mamba.norm.", "mamba.conv1d.bias"}},
    {"jamba", "", "mamba.|self_attn.", {"input_layernorm", "pre_ff_layernorm"}},
    {"jamba", "", "mamba.", {"mamba.x_proj.", "mamba.dt_proj.bias"}},
    {"ernie4_5_moe", "", "mlp.experts.", {"mlp.moe_statics."}},
    {"qwen3_moe", "", "input_layernorm", {"self_attn.q_proj.", "mlp."}},
    {"qwen3", "", "self_attn.", {"self_attn.q_norm.", "self_attn.k_norm."}},
    {"", "", "eh_proj.|enorm.|hnorm.", {"eh_proj.|e_proj.", "enorm.", "hnorm."}},
};

/// Whether `test` holds for one of the alternatives.
template <class Test>
bool any_of_list(std::string_view list, Test test) {
  while (!list.empty()) {
    const size_t end = std::min(list.find('|'), list.size());
    if (test(list.substr(0, end))) return true;
    list = list.substr(std::min(end + 1, list.size()));
  }
  return false;
}

bool has(const LayerParts& parts, std::string_view list) {
  if (const size_t both = list.find('&'); both != list.npos)
    return has(parts, list.substr(0, both)) && has(parts, list.substr(both + 1));
  return any_of_list(list, [&](std::string_view name) {
    const bool anywhere = name.starts_with('*');
    if (anywhere) name.remove_prefix(1);
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
      return anywhere ? part.first.find(name) != part.first.npos : part.first.starts_with(name);
    });
  });
}

bool is_of_type(const std::string& type, std::string_view list) {
  const bool is_not = list.starts_with('!');
  if (is_not) list.remove_prefix(1);
  return list.empty() || is_not != any_of_list(list, [&](std::string_view t) { return type.starts_with(t); });
}

/// A rule's `when`, taken apart.
struct Condition {
  std::string key, op, value;  // op: "", "=", "!=", "<", ">="; "<" and ">=" compare the layer
};

Condition parse(std::string_view when) {
  for (const char* op : {"!=", ">=", "=", "<"})
    if (const size_t at = when.find(op); at != when.npos) {
      Condition c{std::string(when.substr(0, at)), op, std::string(when.substr(at + std::string_view(op).size()))};
      if (c.key == "layer") std::swap(c.key, c.value);
      return c;
    }
  return {std::string(when), "", ""};
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// Whether a config says it of a layer.
bool holds_one(const Json& config, const Condition& c, int64_t layer) {
  if (c.key.empty()) return true;
  const auto it = config.find(c.key);
  if (it == config.end()) return false;
  if (c.op == "<" || c.op == ">=") return it->is_number_integer() && (layer < it->get<int64_t>()) == (c.op == "<");
  const bool is_list = it->is_array();
  if (is_list && layer >= int64_t(it->size())) return false;
  const std::string value = text_of(is_list ? (*it)[size_t(layer)] : *it);
  if (c.op.empty()) return value != "0" && value != "false" && value != "null" && value != "[]";
  return (value == c.value) == (c.op == "=");
}

bool holds(const Json& config, std::string_view when, int64_t layer) {
  const size_t both = when.find('&');
  return holds_one(config, parse(when.substr(0, both)), layer) &&
         (both == when.npos || holds(config, when.substr(both + 1), layer));
}

std::string reason(const Json& config, const Condition& c, const Demand& r) {
  if (c.key.empty() && !*r.types) return fmt::format("no layer has {} without it", std::string_view(r.if_any));
  if (c.key.empty()) return fmt::format("all layers of {} have it", config_string(config, "model_type"));
  const Json& value = config[c.key];
  if (value.is_array()) return fmt::format("{} in config.json gives these layers one", c.key);
  return fmt::format("config.json says {} = {}", c.key, text_of(value));
}

class Rules {
 public:
  Rules(const LayerStack& stack, int64_t first, const Json& config, std::vector<Lack>& lacks)
      : stack_(stack), first_(first), config_(config), lacks_(lacks), type_(config_string(config, "model_type")) {}

  void run() {
    for (const Demand& r : rules)
      if (is_of_type(type_, r.types)) check(r);
  }

 private:
  void check(const Demand& r) {
    const Condition when = parse(std::string_view(r.when).substr(0, std::string_view(r.when).find('&')));
    std::map<std::vector<int64_t>, std::vector<std::string>> missing;
    int64_t meant = 0;
    std::vector<std::vector<int64_t>> without(r.parts.size());
    for (const auto& [index, parts] : stack_.layers)
      if (has(parts, r.if_any) && holds(config_, r.when, first_ + index)) {
        ++meant;
        for (size_t i = 0; i < r.parts.size(); ++i)
          if (!has(parts, r.parts[i]) && !is_known(index, r.parts[i])) without[i].push_back(index);
      }
    for (size_t i = 0; i < r.parts.size(); ++i)
      if (!without[i].empty()) missing[without[i]].push_back(name_of(r.parts[i]));
    for (const auto& [layers, names] : missing) {
      const std::string more = names.size() > 1 ? fmt::format(" .. {} ({} such)", names.back(), names.size()) : "";
      lacks_.push_back(
          {fmt::format("{}.{}.{}{}", stack_.root, ranges(layers), names.front(), more),
           fmt::format("missing in {} of {}; {}", layers.size(), counted(meant, "layer"), reason(config_, when, r)),
           stack_.root, layers, names});
    }
  }

  /// The first of a list, as a message names it.
  static std::string name_of(std::string_view list) {
    std::string_view name = list.substr(0, list.find('|'));
    const bool anywhere = name.starts_with('*');
    if (anywhere) name.remove_prefix(1);
    while (name.ends_with('.')) name.remove_suffix(1);
    return (anywhere ? "*." : "") + std::string(name);
  }

  /// Whether the layer lacks one of the alternatives for a cause that was found.
  bool is_known(int64_t layer, std::string_view list) const {
    return std::any_of(lacks_.begin(), lacks_.end(), [&](const Lack& l) {
      const bool is_here =
          l.is_certain && l.stack == stack_.root && std::count(l.layers.begin(), l.layers.end(), layer) > 0;
      return is_here && std::any_of(l.parts.begin(), l.parts.end(), [&](const std::string& part) {
               return any_of_list(list, [&](std::string_view name) {
                 while (name.starts_with('*')) name.remove_prefix(1);
                 while (name.ends_with('.')) name.remove_suffix(1);
                 return part.find(name) != part.npos || name.starts_with(part);
               });
             });
    });
  }

  const LayerStack& stack_;
  const int64_t first_;
  const Json& config_;
  std::vector<Lack>& lacks_;
  const std::string type_;
};

}  // namespace

void check_rules(const LayerStack& stack, int64_t first, const Json& config, std::vector<Lack>& lacks) {
  Rules(stack, first, config, lacks).run();
}

}  // namespace mxfp4
