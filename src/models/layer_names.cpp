#include "src/models/layer_names.h"

#include <algorithm>

#include "src/base/number.h"

namespace mxfp4 {

namespace {

/// "model.layers.3.mlp.experts.7.up_proj.weight", taken apart.
struct LayerName {
  std::string_view root;        // "model.layers"
  int64_t layer = -1;           // 3; -1: the name has no number
  std::string_view head, tail;  // "mlp.experts", "up_proj.weight"; all is head if no expert is numbered
  int64_t expert = -1;          // 7
};

LayerName take_apart(std::string_view name) {
  LayerName out;
  std::string_view last;
  size_t rest = 0;
  for (size_t start = 0; start < name.size();) {
    const size_t dot = std::min(name.find('.', start), name.size());
    const std::string_view part = name.substr(start, dot - start);
    int64_t number = 0;
    if (number = whole_number(part); start > 0 && number >= 0) {
      if (out.layer < 0) {
        out.root = name.substr(0, start - 1);
        out.layer = number;
        rest = std::min(dot + 1, name.size());
      } else if (last == "experts" && start > rest) {
        out.expert = number;
        out.head = name.substr(rest, start - 1 - rest);
        out.tail = name.substr(std::min(dot + 1, name.size()));
        return out;
      }
    }
    last = part;
    start = dot + 1;
  }
  out.head = name.substr(rest);
  return out;
}

}  // namespace

bool LayerStack::has_experts() const {
  return std::any_of(layers.begin(), layers.end(), [](const auto& layer) {
    return std::any_of(layer.second.begin(), layer.second.end(),
                       [](const auto& part) { return part.first.find("experts.") != std::string::npos; });
  });
}

bool names_mtp(std::string_view part) { return contains_any(part, {"mtp", "nextn"}); }

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return text.find(w) != text.npos; });
}

bool is_in_layer(std::string_view name) { return take_apart(name).layer >= 0; }

std::vector<LayerStack> layer_stacks(const Checkpoint& checkpoint) {
  std::map<std::string, LayerStack, std::less<>> stacks;
  std::string key;
  for (const Tensor& t : checkpoint.tensors) {
    const LayerName n = take_apart(t.name);
    if (n.layer < 0) continue;
    key.assign(n.head);
    if (n.expert >= 0) key.append(".*.").append(n.tail);
    auto stack = stacks.find(n.root);
    if (stack == stacks.end()) stack = stacks.emplace(n.root, LayerStack{std::string(n.root), {}}).first;
    LayerPart& part = stack->second.layers[n.layer][key];
    if (!part.first) part.first = &t;
    if (!part.other && t.shape != part.first->shape) part.other = &t;
    if (n.expert >= 0) part.experts.push_back(n.expert);
  }
  std::vector<LayerStack> out;
  for (auto& [root, stack] : stacks) out.push_back(std::move(stack));
  return out;
}

const LayerStack* main_stack(const std::vector<LayerStack>& stacks) {
  const LayerStack* best = nullptr;
  const auto rank = [](const LayerStack& s) {
    const bool other = s.is_mtp() || contains_any(s.root, {"vis", "vit", "audio", "tower", "encoder", "image", "speech",
                                                           "talker", "draft", "eagle"});
    return std::tuple(!other, s.has_experts(), s.layers.size());
  };
  for (const LayerStack& s : stacks)
    if (!best || rank(s) > rank(*best)) best = &s;
  return best;
}

std::string ranges(const std::vector<int64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    out += out.empty() ? "" : ", ";
    out += i == j ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[j]);
    i = j + 1;
  }
  return out;
}

}  // namespace mxfp4
