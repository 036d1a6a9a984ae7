// Layers of one kind have the same tensors.
#include <algorithm>
#include <set>

#include "src/base/log.h"
#include "src/models/complete.h"

namespace mxfp4 {

namespace {

using Items = std::map<std::string, const Tensor*>;  // a block, module or tensor, and what tells its precision
using Layers = std::map<int64_t, Items>;

constexpr int64_t least_layers = 8;  // of a stack that no config counts

/// Whether `few` are some of `all`, but not all.
bool is_part_of(const Items& few, const Items& all) {
  return few.size() < all.size() &&
         std::all_of(few.begin(), few.end(), [&](const auto& item) { return all.count(item.first) > 0; });
}

bool is_block_of_experts(const std::string& name) {
  for (const char* word : {"mlp", "ffn", "moe", "feed_forward", "expert", "router", "gate"})
    if (name.find(word) != std::string::npos) return true;
  return false;
}

/// The tensor by whose dtype a module's precision is told.
const Tensor* principal(const LayerParts& parts, const std::string& module) {
  for (const char* name : {".weight", ".weight_packed", ".blocks"})
    if (const auto it = parts.find(module + name); it != parts.end()) return it->second.first;
  return nullptr;
}

std::string block_of(const std::string& part) { return part.substr(0, part.find('.')); }
/// Blocks with and without experts have one place in a layer, under several names.
std::string place_of(const std::string& part) {
  const std::string block = block_of(part);
  for (const char* name : {"block_sparse_moe", "moe", "feed_forward", "ffn"})
    if (block == name) return "mlp";
  return block;
}
std::string module_of(const std::string& part) {
  const size_t dot = part.rfind('.');
  return dot == part.npos ? part : part.substr(0, dot);
}

class Comparison {
 public:
  Comparison(const LayerStack& stack, int64_t layers, const std::vector<LayerAttribute>& attributes,
             std::vector<Lack>& lacks)
      : stack_(stack), layers_(layers), attributes_(attributes), lacks_(lacks) {
    for (const auto& [index, parts] : stack.layers)
      if (index < layers)
        for (const auto& [name, part] : parts) {
          blocks_[index][place_of(name)] = nullptr;
          const std::string block = block_of(name), module = module_of(name);
          if (module != block) modules_[block][index][module] = nullptr;
          (module != block ? tensors_[module] : modules_[block])[index][name] = principal(parts, module);
        }
  }

  void run() {
    compare(blocks_, false);
    for (const auto& [block, layers] : modules_) compare(layers, is_block_of_experts(block));
    for (const auto& [module, layers] : tensors_) compare(layers, is_block_of_experts(block_of(module)));
  }

 private:
  void compare(const Layers& layers, bool of_experts) {
    std::set<std::string> items;
    for (const auto& [index, has] : layers)
      for (const auto& [item, unused] : has) items.insert(item);
    std::map<std::vector<int64_t>, std::vector<std::string>> missing;  // items by the layers that lack them
    for (const std::string& item : items)
      if (const std::vector<int64_t> in = lacking(layers, item, of_experts); !in.empty()) missing[in].push_back(item);
    for (const auto& [in, list] : missing) report(layers, in, list);
  }

  /// The layers that lack the item for no reason.
  std::vector<int64_t> lacking(const Layers& layers, const std::string& item, bool of_experts) const {
    std::vector<int64_t> out;
    std::map<int64_t, bool> has;
    int64_t with = 0;
    for (const auto& [index, items] : layers) with += has[index] = items.count(item) > 0;
    if (with == int64_t(layers.size())) return out;
    for (const auto& [index, items] : layers)
      if (!has[index] && is_less_than_a_sister(layers, items, item)) out.push_back(index);
    if (int64_t(out.size()) > with || is_explained(has, of_experts, attributes_, layers_)) out.clear();
    return out;
  }

  bool is_less_than_a_sister(const Layers& layers, const Items& items, const std::string& item) const {
    return std::any_of(layers.begin(), layers.end(), [&](const auto& sister) {
      const auto theirs = sister.second.find(item);
      if (theirs == sister.second.end() || !is_part_of(items, sister.second)) return false;
      const Tensor* ours = items.empty() ? nullptr : items.begin()->second;
      return !ours || !theirs->second || ours->dtype == theirs->second->dtype;  // else it is of another precision
    });
  }

  void report(const Layers& layers, const std::vector<int64_t>& in, const std::vector<std::string>& items) {
    int64_t tensors = 0;
    for (const auto& [name, part] : stack_.layers.at(sister_of(layers, items.front())))
      tensors += std::any_of(items.begin(), items.end(),
                             [&, &name = name, &part = part](const std::string& item) {
                               return name == item || name.starts_with(item + ".") || place_of(name) == item;
                             }) *
                 std::max<int64_t>(1, int64_t(part.experts.size()));
    const std::string more = items.size() > 1 ? fmt::format(" .. {} ({} such)", items.back(), items.size()) : "";
    lacks_.push_back({fmt::format("{}.{}.{}{}", stack_.root, ranges(in), items.front(), more),
                      fmt::format("missing, {} in {}; {} of the same kind {} it", counted(tensors, "tensor"),
                                  in.size() == 1 ? "1 layer" : fmt::format("each of {} layers", in.size()),
                                  counted(with_all(layers, items.front()), "layer"),
                                  with_all(layers, items.front()) == 1 ? "has" : "have")});
  }

  static int64_t sister_of(const Layers& layers, const std::string& item) {
    return std::find_if(layers.begin(), layers.end(), [&](const auto& l) { return l.second.count(item); })->first;
  }
  static int64_t with_all(const Layers& layers, const std::string& item) {
    return std::count_if(layers.begin(), layers.end(), [&](const auto& l) { return l.second.count(item); });
  }

  const LayerStack& stack_;
  const int64_t layers_;
  const std::vector<LayerAttribute>& attributes_;
  std::vector<Lack>& lacks_;
  Layers blocks_;
  std::map<std::string, Layers> modules_, tensors_;  // by block, by module
};

}  // namespace

void compare_layers(const LayerStack& stack, int64_t layers, const std::vector<LayerAttribute>& attributes,
                    std::vector<Lack>& lacks) {
  if (attributes.empty() && !stack.is_mtp() && int64_t(stack.layers.size()) < least_layers && layers == INT64_MAX)
    return;
  Comparison(stack, layers == INT64_MAX ? stack.layers.rbegin()->first + 1 : layers, attributes, lacks).run();
}

void check_experts(const LayerStack& stack, std::vector<Lack>& lacks) {
  using Names = std::set<std::string_view>;
  struct Missing {
    std::string first, last;
    int64_t tensors = 0, layers = 0;
  };
  std::map<std::string, Missing> missing;  // by the tensor's name within an expert
  for (const auto& [index, parts] : stack.layers) {
    std::map<std::string, std::map<int64_t, Names>> modules;  // head -> expert -> names
    for (const auto& [name, part] : parts)
      if (const size_t star = name.find(".*."); star != name.npos)
        for (const int64_t id : part.experts)
          modules[name.substr(0, star)][id].insert(std::string_view(name).substr(star + 3));
    for (const auto& [head, experts] : modules) {
      const auto add = [&, index = index, &head = head](int64_t id, std::string_view tail) {
        Missing& m = missing[head + ".*" + (tail.empty() ? "" : ".") + std::string(tail)];
        m.last = fmt::format("{}.{}.{}.{}{}{}", stack.root, index, head, id, tail.empty() ? "" : ".", tail);
        if (m.tensors++ == 0) m.first = m.last;
      };
      std::set<Names> kinds;
      for (const auto& [id, names] : experts) kinds.insert(names);
      for (int64_t id = 0; id < experts.rbegin()->first; ++id)
        if (!experts.count(id) && experts.rbegin()->first < int64_t(2 * experts.size())) add(id, "");
      for (const auto& [id, names] : experts) {
        Names lacks_of;
        for (const auto& kind : kinds)
          if (kind.size() > names.size() && std::includes(kind.begin(), kind.end(), names.begin(), names.end()))
            for (const std::string_view name : kind)
              if (!names.count(name)) lacks_of.insert(name);
        for (const std::string_view name : lacks_of) add(id, name);
      }
    }
  }
  for (const auto& [name, m] : missing)
    lacks.push_back({m.first, m.tensors == 1 ? "missing; the layer's other experts have it"
                                             : fmt::format("missing, as are {} more up to {}; other experts have them",
                                                           m.tensors - 1, m.last)});
}

}  // namespace mxfp4
