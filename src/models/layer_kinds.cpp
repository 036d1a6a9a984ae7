#include "src/models/layer_kinds.h"

#include <algorithm>
#include <set>

namespace mxfp4 {

namespace {

bool contains(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return text.find(w) != std::string::npos; });
}

bool is_of_experts(const std::string& key) {
  return contains(key, {"moe", "mlp", "expert", "dense", "sparse", "ffn", "hash"});
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

struct Attributes {
  int64_t layers;
  std::vector<LayerAttribute> list = {};

  template <class Value>
  void add(const std::string& key, Value value) {
    LayerAttribute a{{}, is_of_experts(key)};
    for (int64_t i = 0; i < layers; ++i) a.of_layer.push_back(value(i));
    const std::set<std::string> kinds(a.of_layer.begin(), a.of_layer.end());
    if (kinds.size() < 2 || (layers > 2 && int64_t(kinds.size()) * 2 > layers)) return;  // one of each proves nothing
    list.push_back(std::move(a));
  }

  /// Layers below `border`, and the last `border` ones.
  void add_border(const std::string& key, int64_t border) {
    if (border <= 0 || border >= layers || contains(key, {"nextn", "mtp", "num_hidden", "head", "group"})) return;
    if (!contains(key, {"layer", "dense", "first", "start"})) return;
    add(key, [&](int64_t i) { return std::to_string(i < border); });
    add(key, [&](int64_t i) { return std::to_string(i >= layers - border); });
  }

  /// A value for each layer, or the numbers of some layers, from 0 or from 1.
  void add_list(const std::string& key, const Json& list) {
    const auto at = [&](int64_t i) -> const Json& { return list[size_t(i)]; };
    if (int64_t(list.size()) >= layers) {
      if (at(0).is_object())
        for (const auto& [inner, unused] : at(0).items()) {
          const auto value = [&, name = inner](int64_t i) {
            return at(i).is_object() && at(i).contains(name) ? text_of(at(i)[name]) : std::string();
          };
          add(key + inner, value);
        }
      else
        add(key, [&](int64_t i) { return text_of(at(i)); });
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
      if (value.is_number_integer()) add_border(key, value.get<int64_t>());
      if (value.is_array() && !value.empty()) add_list(key, value);
      if (value.is_string() && int64_t(value.get_ref<const std::string&>().size()) == layers)
        add(key, [&](int64_t i) { return value.get_ref<const std::string&>().substr(size_t(i), 1); });
      if (value.is_object() && depth > 0) add_object(value, depth - 1);
    }
  }
};

/// In a model of this many layers one layer that differs from all others is no kind.
constexpr int64_t many_layers = 8;

template <class Value>
bool is_function(const std::map<int64_t, bool>& has, int64_t layers, Value value) {
  std::map<std::string, std::pair<bool, int64_t>> known;  // of a value: whether its layers have it, and how many
  for (const auto& [layer, is] : has) {
    auto& [all_have, count] = known.emplace(value(layer), std::pair(is, int64_t(0))).first->second;
    if (all_have != is) return false;
    ++count;
  }
  return layers < many_layers || std::all_of(known.begin(), known.end(), [](const auto& kind) {
           return kind.second.first || kind.second.second > 1;
         });
}

}  // namespace

std::vector<LayerAttribute> layer_attributes(const Json& config, int64_t layers) {
  Attributes out{layers};
  if (config.is_object()) out.add_object(config, 1);
  return std::move(out.list);
}

bool is_explained(const std::map<int64_t, bool>& has, bool of_experts, const std::vector<LayerAttribute>& attributes,
                  int64_t layers) {
  for (const LayerAttribute& a : attributes)
    if ((of_experts || !a.is_of_experts) &&
        is_function(has, layers, [&](int64_t i) { return a.of_layer.at(size_t(i)); }))
      return true;
  constexpr int64_t longest = 8, least_members = 3;
  for (int64_t period = 2; period <= longest && period * least_members <= layers; ++period)
    if (is_function(has, layers, [&](int64_t i) { return std::to_string(i % period); })) return true;
  return false;
}

}  // namespace mxfp4
