#include "src/models/layer_kinds.h"

#include <algorithm>
#include <set>

#include "src/models/layer_names.h"

namespace mxfp4 {

namespace {

/// In a model of this many layers values that hardly two layers share tell no kinds.
constexpr int64_t many_layers = 8;
constexpr int64_t longest_period = 16;

/// "layer_types" tells by its values: all of them are kinds of attention, or not.
LayerScope scope_of(const std::string& key, const std::vector<std::string>& values) {
  const bool names_attention = contains_any(key, {"attn", "attention"});  // "sparse_attention_freq"
  if (!names_attention && contains_any(key, {"moe", "mlp", "expert", "dense", "sparse", "ffn", "hash"}))
    return LayerScope::experts;
  const bool is_attention =
      names_attention || contains_any(key, {"sliding", "rope", "compress"}) ||
      std::all_of(values.begin(), values.end(), [](const std::string& v) { return contains_any(v, {"attention"}); });
  return is_attention ? LayerScope::attention : LayerScope::all;
}

std::string text_of_kind(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

struct Attributes {
  int64_t layers;
  std::vector<LayerAttribute> list = {};

  template <class Value>
  void add(const std::string& key, Value value) {
    LayerAttribute a;
    for (int64_t i = 0; i < layers; ++i) a.of_layer.push_back(value(i));
    a.scope = scope_of(key, a.of_layer);
    const int64_t kinds = int64_t(std::set<std::string>(a.of_layer.begin(), a.of_layer.end()).size());
    if (kinds < 2 || (layers >= many_layers && kinds * 2 > layers)) return;
    list.push_back(std::move(a));
  }

  /// "first_k_dense_replace": 3 sets layers 0, 1 and 2 apart; "full_attention_interval": 4 every fourth.
  void add_number(const std::string& key, int64_t n) {
    const int64_t border = contains_any(key, {"layer_end"}) ? n + 1 : n;
    if (border > 0 && border < layers &&
        contains_any(key, {"dense", "hash", "first", "layer_start", "layer_end", "shared_layers"}))
      add(key, [&](int64_t i) { return std::to_string(i < border); });
    if (n > 1 && n <= longest_period && !contains_any(key, {"experts"}) &&
        contains_any(key, {"interval", "period", "freq", "step", "every", "pattern", "share", "group_size"}))
      for (int64_t phase = 0; phase < n; ++phase) add(key, [&](int64_t i) { return std::to_string(i % n == phase); });
  }

  /// A value for each layer, or the numbers of some layers, from 0 or from 1, or a pattern that repeats.
  void add_list(const std::string& key, const Json& list) {
    const auto at = [&](int64_t i) -> const Json& { return list[size_t(i) % list.size()]; };
    if (int64_t(list.size()) >= layers || list[0].is_string()) {
      if (list[0].is_object())
        for (const auto& [inner, unused] : list[0].items()) {
          const auto value = [&, name = inner](int64_t i) {
            return at(i).is_object() && at(i).contains(name) ? text_of_kind(at(i)[name]) : std::string();
          };
          add(key + inner, value);
        }
      else
        add(key, [&](int64_t i) { return text_of_kind(at(i)); });
      return;
    }
    std::set<int64_t> numbers;
    for (const Json& v : list)
      if (!v.is_number_integer())
        return;
      else
        numbers.insert(v.get<int64_t>());
    for (const int64_t from : {0, 1}) add(key, [&](int64_t i) { return std::to_string(numbers.count(i + from)); });
  }

  void add_object(const Json& config, int depth) {
    for (const auto& [key, value] : config.items()) {
      if (key == "quantization_config" || key.ends_with("vision_config") || key.ends_with("audio_config")) continue;
      if (value.is_number_integer()) add_number(key, value.get<int64_t>());
      if (value.is_array() && !value.empty()) add_list(key, value);
      if (value.is_string() && contains_any(key, {"pattern", "layer"}) &&
          int64_t(value.get_ref<const std::string&>().size()) == layers)
        add(key, [&](int64_t i) { return value.get_ref<const std::string&>().substr(size_t(i), 1); });
      if (value.is_object() && depth > 0) add_object(value, depth - 1);
    }
  }
};

}  // namespace

LayerScope scope_of_block(const std::string& block) {
  if (contains_any(block, {"mlp", "ffn", "moe", "feed_forward", "expert", "router", "gate"}))
    return LayerScope::experts;
  const bool is_attention = contains_any(block, {"attn", "attention", "mamba", "mixer", "conv", "temporal"}) &&
                            !contains_any(block, {"norm"});
  return is_attention ? LayerScope::attention : LayerScope::all;
}

std::vector<LayerAttribute> layer_attributes(const Json& config, int64_t layers) {
  Attributes out{layers};
  if (config.is_object()) out.add_object(config, 1);
  return std::move(out.list);
}

}  // namespace mxfp4
