// Modules that no layer has without others.
#include <algorithm>
#include <set>

#include "src/base/log.h"
#include "src/models/complete.h"
#include "src/models/model.h"

namespace mxfp4 {

namespace {

/// A module, and one of those that must stand beside it.
struct Partner {
  const char* has;
  std::vector<const char*> needs;  // any of them
};
const Partner partners[] = {
    {"gate_proj", {"up_proj"}},
    {"gate_proj", {"down_proj"}},
    {"up_proj", {"down_proj"}},
    {"w1", {"w2"}},
    {"w3", {"w1"}},
    {"w3", {"w2"}},
    {"w2", {"w1", "w13"}},
    {"q_norm", {"k_norm", "kv_norm"}},
    {"k_norm", {"q_norm"}},
    {"k_proj", {"q_proj", "q_a_proj", "q_b_proj"}},
    {"v_proj", {"k_proj"}},
    {"k_proj", {"v_proj"}},
    {"q_proj", {"k_proj", "kv_proj", "kv_a_proj_with_mqa", "kv_a_proj", "q_conv1d", "k_b_proj", "kv_b_proj"}},
    {"q_proj", {"o_proj", "out_proj", "dense", "c_proj", "proj", "wo", "linear_attn", "o_norm"}},
    {"q_a_proj", {"q_b_proj"}},
    {"q_a_proj", {"q_a_layernorm", "q_a_norm"}},
    {"q_b_proj", {"q_a_proj", "wqkv_a", "fused_qkv_a_proj_with_mqa", "qkv_a_proj"}},
    {"q_a_layernorm", {"q_a_proj", "fused_qkv_a_proj_with_mqa", "qkv_a_proj"}},
    {"kv_a_layernorm", {"kv_a_proj_with_mqa", "kv_a_proj", "fused_qkv_a_proj_with_mqa", "qkv_a_proj"}},
    {"kv_b_proj", {"kv_a_proj_with_mqa", "kv_a_proj", "fused_qkv_a_proj_with_mqa", "qkv_a_proj"}},
    {"kv_a_proj_with_mqa", {"kv_a_layernorm"}},
    {"kv_a_proj_with_mqa", {"kv_b_proj", "k_b_proj", "kv_b", "embed_q"}},
    {"kv_a_proj_with_mqa", {"q_proj", "q_b_proj"}},
    {"kv_a_proj_with_mqa", {"o_proj"}},
    {"input_linear", {"output_linear"}},
    {"output_linear", {"input_linear"}},
    {"query_key_value", {"dense", "o_proj"}},
    {"w13_dn", {"w2_md"}},
    {"w2_md", {"w13_dn"}},
    {"query_layernorm", {"key_layernorm"}},
    {"query_layernorm", {"query_key_value", "q_proj", "q_b_proj", "qkv_proj"}},
    {"key_layernorm", {"query_layernorm"}},
    {"attn_norm", {"ffn_norm", "mlp_norm", "ff_norm"}},
    {"ffn_norm", {"attn_norm", "attention_norm", "operator_norm"}},
};

/// The modules of a layer by the module that they are part of: "self_attn" -> "q_proj", "k_proj" ..
std::map<std::string, std::set<std::string>> modules_by_parent(const LayerParts& parts) {
  std::map<std::string, std::set<std::string>> out;
  for (const auto& [name, unused] : parts) {
    const size_t dot = name.rfind('.');
    const std::string module = dot == name.npos ? name : name.substr(0, dot);
    const size_t parent = module.rfind('.');
    out[parent == module.npos ? "" : module.substr(0, parent)].insert(
        parent == module.npos ? module : module.substr(parent + 1));
  }
  return out;
}

class Partners {
 public:
  Partners(const LayerStack& stack, std::vector<Lack>& lacks) : stack_(stack), lacks_(lacks) {}

  void run() {
    std::map<std::string, std::set<std::string>> of_any;  // a module of one layer is compared between layers elsewhere
    bool is_gated = false;
    for (const auto& [index, parts] : stack_.layers)
      for (const auto& [parent, modules] : modules_by_parent(parts)) {
        of_any[parent].insert(modules.begin(), modules.end());
        is_gated = is_gated || (modules.count("gate_proj") && modules.count("up_proj"));
      }
    for (const auto& [parent, modules] : of_any) {
      for (const Partner& p : partners)
        if (is_about(p, parent)) require(parent, modules, p.has, p.needs);
      if (modules.count("w1") && parent.ends_with("experts.*")) require(parent, modules, "w2", {"w3", "v1"});
      if (is_gated && modules.count("down_proj"))
        require(parent, modules, "up_proj", {"gate_proj"}),
            require(parent, modules, "down_proj", {"up_proj", "gate_up_proj"});
      if (is_gated && modules.count("down_proj")) require(parent, modules, "gate_proj", {"up_proj"});
    }
  }

  /// Reports scales and biases without their matrix, routers without their matrix, and matrices without scales if
  /// others of their dtype have scales. FP8 matrices need scales if the config says that the model is quantized.
  /// Problems that repeat over layers are reported once.
  void check_tensors(bool is_quantized_model) {
    std::set<Dtype> scaled;
    if (is_quantized_model) scaled.insert(Dtype::F8_E4M3);
    for (const auto& [index, parts] : stack_.layers)
      for (const auto& [name, part] : parts)
        if (is_quantized(name, part) && has_scale(parts, module_of(name))) scaled.insert(part.first->dtype);
    std::map<std::pair<std::string, std::string>, std::vector<int64_t>> layers;  // by module and what it lacks
    for (const auto& [index, parts] : stack_.layers)
      for (const auto& [name, part] : parts) {
        const std::string module = module_of(name), last = name.substr(module.size() + (module.size() < name.size()));
        const bool is_router = (module.ends_with(".gate") || module.ends_with(".router")) && !has_inner(parts, module);
        if (is_known(module)) continue;
        if (last == "scale" && has_inner(parts, module)) continue;  // of the input: Gemma-4's router
        if ((is_router || last == "bias" || is_scale(last)) && !has_matrix(parts, module))
          layers[{module + ".weight", fmt::format("missing beside {}", last)}].push_back(index);
        else if (is_quantized(name, part) && scaled.count(part.first->dtype) && !has_scale(parts, module))
          layers[{module, fmt::format("{} without scales", name_of(part.first->dtype))}].push_back(index);
      }
    for (const auto& [lack, in] : layers)
      lacks_.push_back({fmt::format("{}.{}.{}", stack_.root, ranges(in), lack.first),
                        in.size() == 1 ? lack.second : fmt::format("{} in each of {} layers", lack.second, in.size()),
                        stack_.root,
                        in,
                        {lack.first}});
  }

 private:
  /// Whether it was said of this part in some layer.
  bool is_known(std::string_view part) const {
    while (part.ends_with('.')) part.remove_suffix(1);
    return std::any_of(lacks_.begin(), lacks_.end(),
                       [&](const Lack& l) { return l.is_certain && l.where.find(part) != std::string::npos; });
  }

  /// Whether the rule of a partner holds in a module. AFMoE's attention has a gate_proj alone. Of norms only attention
  /// itself needs both: the indexer within DeepSeek's attention has a k_norm alone.
  static bool is_about(const Partner& p, std::string_view parent) {
    const std::string_view has = p.has;
    if (has == "gate_proj") return !contains_any(parent, {"attn", "attention"});
    const bool is_norm_of_heads = has == "q_norm" || has == "k_norm";
    return !is_norm_of_heads || contains_any(parent.substr(parent.rfind('.') + 1), {"attn", "attention"});
  }

  static bool is_scale(std::string_view last) {
    return last == "weight_scale" || last == "weight_scale_inv" || last == "scale" || last == "scales";
  }
  static bool is_quantized(const std::string& name, const LayerPart& part) {
    const bool is_matrix = name.ends_with(".weight") || name.ends_with(".weight_packed");
    return is_matrix && (part.first->dtype == Dtype::F8_E4M3 || is_code_dtype(part.first->dtype));
  }
  static std::string module_of(const std::string& name) {
    return name.substr(0, std::min(name.rfind('.'), name.size()));
  }
  static bool has_matrix(const LayerParts& parts, const std::string& module) {
    for (const char* name : {".weight", ".weight_packed", ".blocks", ".qweight", ".w_q"})
      if (parts.count(module + name)) return true;
    return parts.count(module) > 0;  // "experts.w13_weight" beside "experts.w13_weight.scale"
  }
  static bool has_scale(const LayerParts& parts, const std::string& module) {
    return std::any_of(parts.lower_bound(module + "."), parts.lower_bound(module + "/"),
                       [](const auto& part) { return is_scale(part.first.substr(part.first.rfind('.') + 1)); });
  }
  /// Whether there are modules within it.
  static bool has_inner(const LayerParts& parts, const std::string& module) {
    return std::any_of(parts.lower_bound(module + "."), parts.lower_bound(module + "/"),
                       [&](const auto& part) { return part.first.find('.', module.size() + 1) != std::string::npos; });
  }

  void require(const std::string& parent, const std::set<std::string>& modules, const char* has,
               const std::vector<const char*>& needs) {
    if (!modules.count(has)) return;
    if (std::any_of(needs.begin(), needs.end(), [&](const char* n) { return modules.count(n) > 0; })) return;
    const std::string inner = parent.empty() ? "" : parent + ".", needed = inner + needs.front();
    const std::string at = stack_.root + ".*." + inner;
    if (!is_known(at + needs.front()))
      lacks_.push_back({at + needs.front(),
                        fmt::format("missing in every layer that has {}{}", at, has),
                        stack_.root,
                        layers_with(inner + has),
                        {needed}});
  }

  std::vector<int64_t> layers_with(const std::string& module) const {
    std::vector<int64_t> out;
    for (const auto& [index, parts] : stack_.layers)
      if (const auto it = parts.lower_bound(module); it != parts.end() && it->first.starts_with(module))
        out.push_back(index);
    return out;
  }

  const LayerStack& stack_;
  std::vector<Lack>& lacks_;
};

}  // namespace

void check_partners(const LayerStack& stack, bool is_quantized, std::vector<Lack>& lacks) {
  Partners partners_of(stack, lacks);
  partners_of.run();
  partners_of.check_tensors(is_quantized);
}

}  // namespace mxfp4
