// Sizes and counts that a config gives, beside those of the tensors.
#include <algorithm>
#include <set>

#include "src/base/log.h"
#include "src/models/complete.h"
#include "src/models/families.h"
#include "src/models/router.h"

namespace mxfp4 {

namespace {

bool is_float(Dtype d) {
  return d == Dtype::BF16 || d == Dtype::F16 || d == Dtype::F32 || d == Dtype::F8_E4M3 || d == Dtype::F8_E5M2;
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_embedding(std::string_view name) {
  return is_any_of(
      name, {"embed_tokens.weight", "embed.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight"});
}

bool is_head(std::string_view name) { return is_any_of(name, {"lm_head.weight", "head.weight", "output.weight"}); }

bool has_hidden_size(std::string_view name) {
  return is_any_of(name, {"input_layernorm.weight", "post_attention_layernorm.weight", "attn_norm.weight",
                          "ffn_norm.weight", "enorm.weight", "hnorm.weight"});
}

/// Tensors of one cause, in one line.
class Line {
 public:
  Line(const char* what, std::string expected) : what_(what), expected_(std::move(expected)) {}

  void add(const std::string& where, int64_t is) {
    if (count_++ == 0) first_ = where, is_ = is;
    last_ = where;
  }

  void report(std::vector<Lack>& lacks) const {
    if (count_ == 0) return;
    const std::string more = count_ > 1 ? fmt::format(", and {} more up to {}", count_ - 1, last_) : "";
    lacks.push_back({first_, fmt::format("{} {}{}; {}", is_, what_, more, expected_)});
  }

 private:
  const char* what_;
  const std::string expected_;
  int64_t count_ = 0, is_ = 0;
  std::string first_, last_;
};

std::string config_says(const char* key, int64_t value) { return fmt::format("config.json says {} = {}", key, value); }

struct Count {
  const char* key = "";
  int64_t experts = 0;
};
Count experts_of(const Json& config, bool is_mtp) {
  for (const char* key : {"dspark_n_routed_experts", "n_routed_experts", "num_local_experts", "num_experts"})
    if (const int64_t n = config_count(config, key, 0); n > 0 && n <= max_experts)
      if (is_mtp || !std::string_view(key).starts_with("dspark")) return {key, n};
  return {};
}

/// Ids of a layer's routed experts, by the name before the number: "mlp.experts". Scales of activations prove no
/// expert.
std::map<std::string, std::set<int64_t>> routed_experts(const LayerParts& parts, bool is_any_dtype) {
  std::map<std::string, std::set<int64_t>> out;
  for (const auto& [name, part] : parts) {
    const std::string head = name.substr(0, std::min(name.find(".*."), name.size()));
    if (head == name || head.find("shared") != head.npos) continue;
    const bool is_weight = is_float(part.first->dtype) && name.find(".input_") == name.npos;
    if (is_any_dtype || is_weight) out[head].insert(part.experts.begin(), part.experts.end());
  }
  return out;
}

/// Rows of a matrix; 0: the layer has none of that name.
int64_t rows_of_size(const LayerParts& parts, const std::string& name) {
  const auto it = parts.find(name);
  return it != parts.end() && it->second.first->shape.size() == 2 ? it->second.first->shape[0] : 0;
}

/// Rows of the router beside the experts; 0: not known.
int64_t rows_of_router(const LayerParts& parts, const std::string& experts) {
  const std::string parent = experts.substr(0, experts.rfind('.') + 1);
  for (const std::string& above : {parent, std::string()})
    for (const std::string_view name : router_names())
      if (const int64_t rows = rows_of_size(parts, above + std::string(name.substr(1))); rows > 0) return rows;
  return 0;
}

/// Rows of the router that a bias belongs to; 0: the tensor is no such bias, or the router is not known.
int64_t rows_beside_bias(const LayerParts& parts, const std::string& bias) {
  const size_t dot = bias.rfind('.') + 1;
  const std::string module = bias.substr(0, dot), last = bias.substr(dot);
  const bool is_of_module = module.ends_with("gate.") || module.ends_with("router.");
  if (last != "e_score_correction_bias" && last != "expert_bias" && !(last == "bias" && is_of_module)) return 0;
  return is_of_module ? rows_of_size(parts, module + "weight") : rows_of_router(parts, module);
}

}  // namespace

void count_experts(const LayerStack& stack, int64_t layers, const Json& config, std::vector<Lack>& lacks) {
  struct Missing {
    std::string experts;
    Count says;
    size_t count;
    auto key() const { return std::pair(experts, count); }
  };
  std::map<std::pair<std::string, size_t>, std::pair<Missing, std::vector<int64_t>>> missing;
  for (const auto& [index, parts] : stack.layers) {
    const bool is_mtp = index >= layers;
    const Count says = experts_of(config, is_mtp);
    for (const auto& [head, ids] : routed_experts(parts, is_mtp)) {
      const int64_t last = *ids.rbegin();
      const bool has_known_gaps = last < int64_t(2 * ids.size());  // check_experts() names them
      const bool is_pruned = rows_of_router(parts, head) == last + 1 && has_known_gaps;
      if (is_pruned && !std::string_view(says.key).starts_with("dspark")) continue;  // that key counts no main layers
      std::vector<int64_t> lacking;
      for (int64_t id = has_known_gaps ? last + 1 : 0; id < says.experts; ++id)
        if (!ids.count(id)) lacking.push_back(id);
      if (lacking.empty()) continue;
      const Missing m{head + "." + ranges(lacking), says, lacking.size()};
      auto& [of, in] = missing[m.key()];
      of = m;
      in.push_back(index);
    }
  }
  for (const auto& [key, found] : missing) {
    const auto& [m, in] = found;
    const std::string each = in.size() > 1 ? fmt::format(" in each of {} layers", in.size()) : "";
    lacks.push_back({fmt::format("{}.{}.{}", stack.root, ranges(in), m.experts),
                     fmt::format("{} missing{}; config.json says {} = {}", counted(int64_t(m.count), "expert"), each,
                                 m.says.key, m.says.experts),
                     stack.root,
                     in,
                     {m.experts}});
  }
}

void check_outer_sizes(const Checkpoint& ck, const std::string& parent, const Json& config, std::vector<Lack>& lacks) {
  const int64_t vocabulary = config_count(config, "vocab_size", 0), hidden = config_count(config, "hidden_size", 0);
  const bool is_projected = config.contains("embedding_size") || config.contains("word_embed_proj_dim");
  Line rows("rows", config_says("vocab_size", vocabulary)), columns("columns", config_says("hidden_size", hidden));
  Line numbers("numbers", config_says("hidden_size", hidden));
  for (const Tensor& t : ck.tensors) {
    const bool is_below = t.name.starts_with(parent);
    const std::string_view name = std::string_view(t.name).substr(is_below ? parent.size() : 0);
    const bool is_top = is_below || t.name == "lm_head.weight" || t.name.ends_with("language_model.lm_head.weight");
    if (!is_top || !is_float(t.dtype) || is_in_layer(t.name)) continue;
    if (t.shape.size() == 1 && name == "norm.weight" && hidden > 0 && t.shape[0] != hidden)
      numbers.add(ck.where(t), t.shape[0]);
    if (t.shape.size() != 2 || !(is_embedding(name) || is_head(name.substr(name.rfind('.', name.size() - 8) + 1))))
      continue;
    if (t.shape[0] < vocabulary) rows.add(ck.where(t), t.shape[0]);
    if (hidden > 0 && t.shape[1] != hidden && !is_projected) columns.add(ck.where(t), t.shape[1]);
  }
  for (const Line* line : {&rows, &columns, &numbers}) line->report(lacks);
}

void check_layer_sizes(const LayerStack& stack, const Json& config, std::vector<Lack>& lacks) {
  const int64_t hidden = config_count(config, "hidden_size", 0);
  const char* key = intermediate_key(config);
  const int64_t intermediate = config_count(config, key, 0);
  Line numbers("numbers", config_says("hidden_size", hidden));
  Line rows("rows", config_says(key ? key : "", intermediate));
  Line biases("numbers", "as many as the router has rows are expected");
  for (const auto& [index, parts] : stack.layers)
    for (const auto& [name, part] : parts) {
      const Tensor& t = *part.first;
      if (hidden > 0 && t.shape.size() == 1 && has_hidden_size(name) && t.shape[0] != hidden)
        numbers.add(t.name, t.shape[0]);
      if (const int64_t of_router = rows_beside_bias(parts, name);
          of_router > 0 && t.shape != std::vector<int64_t>{of_router} &&
          t.shape != std::vector<int64_t>{of_router - rows_without_experts(config)})
        biases.add(t.name, t.shape.empty() ? 1 : t.shape[0]);
      if (part.experts.empty() || t.shape.size() != 2 || !is_float(t.dtype)) continue;
      if (part.other)
        lacks.push_back({part.other->name, fmt::format("{}, {} has {}", describe(part.other->dtype, part.other->shape),
                                                       t.name, describe(t.dtype, t.shape))});
      const std::string_view tail = std::string_view(name).substr(name.find(".*.") + 3);
      const bool is_up = is_any_of(tail, {"gate_proj.weight", "up_proj.weight", "w1.weight", "w3.weight"});
      if (is_up && name.find("shared") == name.npos && t.shape[0] < intermediate) rows.add(t.name, t.shape[0]);
    }
  for (const Line* line : {&numbers, &rows, &biases}) line->report(lacks);
}

}  // namespace mxfp4
