// Layers of one kind have the same tensors.
#include <algorithm>
#include <set>

#include "src/base/log.h"
#include "src/models/complete.h"

namespace mxfp4 {

namespace {

/// What tells a module's precision; null if it is none. Of a tensor, also the tensor itself.
struct Principal {
  const Tensor *weight = nullptr, *scales = nullptr, *own = nullptr;
};
using Items = std::map<std::string, Principal>;  // by block, module or tensor
using Layers = std::map<int64_t, Items>;

constexpr int64_t least_layers = 8;  // of a stack that no config counts

/// Whether `few` are some of `all`, but not all.
bool is_part_of(const Items& few, const Items& all) {
  return few.size() < all.size() &&
         std::all_of(few.begin(), few.end(), [&](const auto& item) { return all.count(item.first) > 0; });
}

Principal principal(const LayerParts& parts, const std::string& module) {
  const auto first_of = [&](std::initializer_list<const char*> names) -> const Tensor* {
    for (const char* name : names)
      if (const auto it = parts.find(module + name); it != parts.end()) return it->second.first;
    return nullptr;
  };
  return {first_of({".weight", ".weight_packed", ".blocks", ""}), first_of({".weight_scale"}), nullptr};
}

bool differ(const Tensor* a, const Tensor* b) { return a && b && a->dtype != b->dtype; }

std::string block_of(const std::string& part) { return part.substr(0, part.find('.')); }
/// Blocks with and without experts have one place in a layer, under several names.
std::string place_of(const std::string& part) {
  const std::string block = block_of(part);
  for (const char* name : {"block_sparse_moe", "moe", "feed_forward", "ffn"})
    if (block == name) return "mlp";
  return block;
}
std::string module_of_layer(const std::string& part) {
  const size_t dot = part.rfind('.');
  return dot == part.npos ? part : part.substr(0, dot);
}

bool has_block(const LayerParts& parts, const std::string& place) {
  return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return place_of(part.first) == place; });
}

bool has_experts(const LayerParts& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const auto& p) { return p.first.find("experts.") != p.first.npos; });
}

/// Modules, and tensors that are no module's: layers of another precision have the same. What lies within a module
/// may differ, but experts do not.
std::set<std::string> comparable(const LayerParts& parts) {
  std::set<std::string> out;
  for (const auto& [name, part] : parts) {
    const std::string last = name.substr(name.rfind('.') + 1);
    const bool is_of_module = last.starts_with("weight") || last.starts_with("scale") || last.starts_with("bias") ||
                              last.starts_with("q") || last == "blocks" || last == "input_scale";
    const std::string item = is_of_module ? module_of_layer(name) : name;
    const bool is_inner = std::count(item.begin(), item.end(), '.') > 1 && item.find("experts.") == item.npos;
    if (last != "bias" && !is_inner) out.insert(item);
  }
  return out;
}

/// Whether a layer of multi-token prediction has an item, or another one in its place. LongCat has one norm for the
/// numbered ones of main layers. MiMo has its own name of the norm before the MLP. Experts may be in one tensor.
bool has_in_place(const std::set<std::string>& items, const std::string& item) {
  if (items.count(item)) return true;
  const std::string block = block_of(item);
  if (block.find("norm") != block.npos)
    return items.count(block) || (item == "post_attention_layernorm" && items.count("pre_mlp_layernorm"));
  const size_t star = item.find("experts.*.");
  if (star == item.npos) return false;
  const std::string stacked = item.substr(0, star) + "experts.", numbered = stacked + "*.";
  const auto any_starts = [&](const std::string& start) {
    return std::any_of(items.begin(), items.end(), [&](const std::string& i) { return i.starts_with(start); });
  };
  return any_starts(stacked) && !any_starts(numbered);
}

/// Whether a layer of multi-token prediction needs an item: if it has some of that block, or all norms of a main layer,
/// each of which stands before a block.
bool needs(const std::set<std::string>& items, const std::string& item, bool has_norms) {
  const std::string block = block_of(item);
  const bool has_attention = std::any_of(items.begin(), items.end(), [](const std::string& i) {
    return i.starts_with("self_attn") || i.starts_with("attn.");
  });
  if (block.find("norm") != block.npos) return has_attention;
  return has_norms ||
         std::any_of(items.begin(), items.end(), [&](const std::string& i) { return block_of(i) == block; });
}

class Comparison {
 public:
  Comparison(const LayerStack& stack, int64_t layers, const std::vector<LayerAttribute>& attributes,
             std::vector<Lack>& lacks)
      : stack_(stack), attributes_(attributes), lacks_(lacks) {
    std::set<std::string> modules, tensors;
    for (const auto& [index, parts] : stack.layers)
      for (const auto& [name, part] : parts) modules.insert(module_of_layer(name)), tensors.insert(name);
    for (const auto& [index, parts] : stack.layers)
      if (index < layers)
        for (const auto& [name, part] : parts) {
          if (contains_any(name, {".lora_"})) continue;  // adapters are of any layers
          blocks_[index][place_of(name)] = {};
          const std::string block = block_of(name), module = module_of_layer(name);
          const auto add_module = [&, layer = index](const std::string& m) { modules_[block][layer][m] = {}; };
          if (modules.count(name)) add_module(name);                       // a tensor here, a module elsewhere
          if (tensors.count(module)) add_module(module_of_layer(module));  // a module here, a tensor elsewhere
          if (module != block) add_module(module);
          Principal& p = (module != block ? tensors_[module] : modules_[block])[index][name];
          p = principal(parts, module);
          p.own = part.first;
        }
  }

  void run() {
    compare(blocks_);
    for (const auto& [block, layers] : modules_) compare(layers);
    for (const auto& [module, layers] : tensors_) compare(layers);
  }

 private:
  /// Layers that lack an item which another layer of their kind has, and how many of the kind have it.
  struct Lacking {
    std::vector<int64_t> layers;
    int64_t with = 0;
    auto operator<=>(const Lacking&) const = default;
  };

  void compare(const Layers& layers) {
    std::set<std::string> items;
    for (const auto& [index, has] : layers)
      for (const auto& [item, unused] : has) items.insert(item);
    std::map<Lacking, std::vector<std::string>> missing;
    for (const std::string& item : items)
      if (Lacking l = lacking(layers, item); !l.layers.empty()) missing[std::move(l)].push_back(item);
    for (const auto& [lacking, list] : missing) report(layers, lacking, list);
  }

  /// By the attribute that leaves the fewest: a config has many, and one of them means this item. If none does, all
  /// layers are of one kind.
  Lacking lacking(const Layers& layers, const std::string& item) const {
    const bool all_have =
        std::all_of(layers.begin(), layers.end(), [&](const auto& l) { return l.second.count(item); });
    if (all_have || is_for_one_end(layers, item)) return {};
    const LayerScope scope = scope_of_block(block_of(item));
    const bool is_whole_block_of_experts =
        scope == LayerScope::experts && &layers == &blocks_;  // dense ones have it, too
    Lacking best = lacking_of_kinds(layers, item, nullptr);
    for (const LayerAttribute& a : attributes_) {
      if (best.layers.empty()) return best;
      if (a.scope != LayerScope::all && (a.scope != scope || is_whole_block_of_experts)) continue;
      if (Lacking l = lacking_of_kinds(layers, item, &a); l.layers.size() < best.layers.size()) best = std::move(l);
    }
    return best;
  }

  /// Whether only the first or only the last layer of multi-token prediction has it: what enters and leaves the draft.
  bool is_for_one_end(const Layers& layers, const std::string& item) const {
    if (!stack_.is_mtp()) return false;
    const int64_t first = stack_.layers.begin()->first, last = stack_.layers.rbegin()->first;
    const auto is_of_others = [&](int64_t end) {
      return std::any_of(layers.begin(), layers.end(),
                         [&](const auto& l) { return l.first != end && l.second.count(item); });
    };
    return !is_of_others(first) || !is_of_others(last);
  }

  Lacking lacking_of_kinds(const Layers& layers, const std::string& item, const LayerAttribute* kinds) const {
    std::map<std::string, std::vector<const Items*>> with;  // by kind
    const auto kind_of = [&](int64_t layer) { return kinds ? kinds->of_layer.at(size_t(layer)) : std::string(); };
    for (const auto& [index, items] : layers)
      if (items.count(item)) with[kind_of(index)].push_back(&items);
    Lacking out;
    std::set<std::string> counted;  // kinds
    for (const auto& [index, items] : layers)
      if (const auto sisters = with.find(kind_of(index)); sisters != with.end() && !items.count(item))
        if (is_less_than_any(items, sisters->second, item)) {
          out.layers.push_back(index);
          counted.insert(sisters->first);
        }
    for (const std::string& kind : counted) out.with += int64_t(with[kind].size());
    return out;
  }

  static bool is_less_than_any(const Items& items, const std::vector<const Items*>& sisters, const std::string& item) {
    return std::any_of(sisters.begin(), sisters.end(), [&](const Items* sister) {
      if (!is_part_of(items, *sister)) return false;
      const Principal ours = items.empty() ? Principal() : items.begin()->second, theirs = sister->at(item);
      const bool is_of_other_precision = differ(ours.weight, theirs.weight) || differ(ours.scales, theirs.scales) ||
                                         std::any_of(items.begin(), items.end(), [&](const auto& i) {
                                           return differ(i.second.own, sister->at(i.first).own);
                                         });
      return !is_of_other_precision;
    });
  }

  void report(const Layers& layers, const Lacking& lacking, const std::vector<std::string>& items) {
    int64_t tensors = 0;
    for (const auto& [name, part] : stack_.layers.at(sister_of(layers, items.front())))
      tensors += std::any_of(items.begin(), items.end(),
                             [&, &name = name, &part = part](const std::string& item) {
                               return name == item || name.starts_with(item + ".") || place_of(name) == item;
                             }) *
                 std::max<int64_t>(1, int64_t(part.experts.size()));
    const std::string more = items.size() > 1 ? fmt::format(" .. {} ({} such)", items.back(), items.size()) : "";
    const size_t count = lacking.layers.size();
    lacks_.push_back({fmt::format("{}.{}.{}{}", stack_.root, ranges(lacking.layers), items.front(), more),
                      fmt::format("missing, {} in {}; {} of the same kind {} it", counted(tensors, "tensor"),
                                  count == 1 ? "1 layer" : fmt::format("each of {} layers", count),
                                  counted(lacking.with, "layer"), lacking.with == 1 ? "has" : "have"),
                      stack_.root, lacking.layers, items, int64_t(count) <= lacking.with});
  }

  static int64_t sister_of(const Layers& layers, const std::string& item) {
    return std::find_if(layers.begin(), layers.end(), [&](const auto& l) { return l.second.count(item); })->first;
  }

  const LayerStack& stack_;
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

void compare_mtp(const LayerStack& main, int64_t layers, const LayerStack& stack, std::vector<Lack>& lacks) {
  for (const auto& [index, parts] : stack.layers) {
    if (&stack == &main && index < layers) continue;
    const bool experts = has_experts(parts) || !has_block(parts, "mlp");
    std::map<std::string, int64_t> of_main;  // how many main layers have it
    int64_t count = 0;
    for (auto layer = main.layers.begin(); layer != main.layers.lower_bound(layers); ++layer)
      if (has_experts(layer->second) == experts && ++count)
        for (const std::string& item : comparable(layer->second)) ++of_main[item];
    const std::set<std::string> ours = comparable(parts);
    std::erase_if(of_main, [&](const auto& item) { return item.second < count; });
    int64_t norms = 0;
    const bool has_norms = std::all_of(of_main.begin(), of_main.end(), [&](const auto& item) {
      const bool is_norm = item.first == block_of(item.first) && item.first.find("norm") != std::string::npos;
      return !is_norm || (++norms && has_in_place(ours, item.first));
    });
    std::set<std::string> said;  // of this layer
    for (const Lack& l : lacks)
      if (l.is_certain && l.stack == stack.root && std::count(l.layers.begin(), l.layers.end(), index))
        said.insert(l.parts.begin(), l.parts.end());
    std::vector<std::string> missing;
    for (const auto& [item, with] : of_main)
      if (!has_in_place(ours, item) && !has_in_place(said, item) && needs(ours, item, has_norms && norms > 0))
        missing.push_back(item);
    if (missing.empty()) continue;
    const std::string more = missing.size() > 1 ? fmt::format(" .. {} ({} such)", missing.back(), missing.size()) : "";
    lacks.push_back({fmt::format("{}.{}.{}{}", stack.root, index, missing.front(), more),
                     "missing in a layer of multi-token prediction; all main layers have it",
                     stack.root,
                     {index},
                     missing});
  }
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
