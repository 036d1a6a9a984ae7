// Blocks that layers of every transformer have.
#include <algorithm>

#include "src/base/log.h"
#include "src/models/complete.h"

namespace mxfp4 {

namespace {

using Test = bool (*)(std::string_view part);

bool is_norm(std::string_view part) { return contains_any(part, {"norm", "ln_", "_ln", "ln1"}); }

/// Whether a tensor mixes tokens: attention, a state space, a convolution. Sinks, biases and scales alone do not.
bool is_mixer(std::string_view part) {
  const std::string_view last = part.substr(part.rfind('.') + 1);
  const std::string_view block = part.substr(0, part.find('.'));
  const bool is_in_norm = is_norm(block) && !block.starts_with("norm_attn");  // DBRX's block has both
  if (is_norm(last) || is_in_norm || part.starts_with("hc_")) return false;
  if (contains_any(last, {"bias", "sink", "scale"})) return false;
  const std::string_view module = part.substr(0, part.rfind('.'));
  if (is_norm(module.substr(module.rfind('.') + 1))) return false;
  return contains_any(part, {"attn", "attention", "mixer", "mamba", "conv", "ssm", "temporal", "recurrent", "qkv",
                             "query", "q_proj", "k_proj", "wq", "time_mix"});
}

bool is_in_block(std::string_view part) {
  return contains_any(part, {"attn.", "attention.", "mixer.", "mamba.", "conv.", "temporal_block."});
}

/// A norm of the layer itself, not of its attention.
bool is_layer_norm(std::string_view part) { return is_norm(part) && !is_in_block(part); }

bool is_mlp(std::string_view part) {
  return contains_any(part, {"mlp.", "ffn.", "moe.", "feed_forward.", "experts."}) && !is_norm(part);
}

bool has_any(const LayerParts& parts, Test test) {
  return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return test(part.first); });
}

bool any_layer_has(const LayerStack& stack, Test test) {
  return std::any_of(stack.layers.begin(), stack.layers.end(),
                     [&](const auto& layer) { return has_any(layer.second, test); });
}

/// Whether some of it was said.
bool is_known(const std::vector<Lack>& lacks, Test test) {
  return std::any_of(lacks.begin(), lacks.end(), [&](const Lack& l) {
    return std::any_of(l.parts.begin(), l.parts.end(), [&](const std::string& part) { return test(part + ".weight"); });
  });
}

}  // namespace

void check_blocks(const LayerStack& stack, const Json& config, std::vector<Lack>& lacks) {
  std::vector<int64_t> all;
  for (const auto& [index, parts] : stack.layers) all.push_back(index);
  const std::string where = stack.root + "." + ranges(all);
  const bool is_without = !any_layer_has(stack, is_mixer) && !is_known(lacks, is_mixer);
  for (const char* key : {"num_attention_heads", "n_heads", "n_head"})
    if (const int64_t heads = config_count(config, key, 0); heads > 0 && is_without)
      lacks.push_back({where,
                       fmt::format("no layer has attention; config.json says {} = {}", key, heads),
                       stack.root,
                       all,
                       {"attention"}});
  const bool needs_norm = any_layer_has(stack, is_mlp) || any_layer_has(stack, is_mixer);
  if (needs_norm && !any_layer_has(stack, is_layer_norm) && !is_known(lacks, is_layer_norm))
    lacks.push_back({where, "no layer has a norm", stack.root, all, {"norm"}});
}

}  // namespace mxfp4
