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
    {"q_norm", {"k_norm", "kv_norm"}},
    {"k_norm", {"q_norm"}},
    {"k_proj", {"q_proj", "q_a_proj", "q_b_proj"}},
    {"v_proj", {"k_proj"}},
    {"q_proj", {"k_proj", "kv_proj", "kv_a_proj_with_mqa", "kv_a_proj", "q_conv1d", "k_b_proj", "kv_b_proj"}},
    {"q_proj", {"o_proj", "out_proj", "dense", "c_proj", "proj", "wo", "linear_attn", "o_norm"}},
    {"q_a_proj", {"q_b_proj"}},
    {"q_a_proj", {"q_a_layernorm", "q_a_norm"}},
    {"q_b_proj", {"q_a_proj", "wqkv_a", "fused_qkv_a_proj_with_mqa", "qkv_a_proj"}},
    {"kv_a_proj_with_mqa", {"kv_a_layernorm"}},
    {"kv_a_proj_with_mqa", {"kv_b_proj", "k_b_proj", "kv_b"}},
    {"attn_norm", {"ffn_norm", "mlp_norm", "ff_norm"}},
    {"ffn_norm", {"attn_norm", "attention_norm", "operator_norm"}},
};

/// A module that each layer of a model type has, if any of its layers has one that begins with `if_any`.
struct Required {
  const char* model_type;  // the beginning of it
  const char* if_any;
  std::vector<const char*> parts;  // beginnings; the first word after a '|' will do, too
};
const Required required[] = {
    {"gpt_oss",
     "",
     {"self_attn.q_proj.weight|self_attn.qkv", "self_attn.q_proj.bias|self_attn.qkv",
      "self_attn.k_proj.bias|self_attn.qkv", "self_attn.v_proj.bias|self_attn.qkv", "self_attn.o_proj.weight",
      "self_attn.o_proj.bias", "self_attn.sinks", "input_layernorm.weight", "post_attention_layernorm.weight",
      "mlp.router.weight", "mlp.router.bias",
      "mlp.experts.gate_up_proj_bias|mlp.experts.*.gate_up_proj.bias|mlp.experts.gate_proj.bias|mlp.experts.gate_up_"
      "proj.bias",
      "mlp.experts.down_proj_bias|mlp.experts.*.down_proj.bias|mlp.experts.down_proj.bias"}},
    {"deepseek_v4", "attn_norm", {"attn_norm.weight", "ffn_norm.weight"}},
    {"deepseek_v4",
     "attn.",
     {"attn.wq_a.", "attn.wq_b.", "attn.wkv.", "attn.wo_a.", "attn.wo_b.", "attn.q_norm.", "attn.kv_norm.",
      "attn.attn_sink", "hc_attn_fn", "hc_attn_base", "hc_attn_scale", "hc_ffn_fn", "hc_ffn_base", "hc_ffn_scale"}},
    {"qwen3_moe",
     "self_attn.",
     {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj.", "self_attn.o_proj.", "self_attn.q_norm.",
      "self_attn.k_norm."}},
};

/// Model types whose layers have one norm before attention and one after it.
constexpr const char* two_norms[] = {"qwen",    "glm4_moe", "glm_moe", "deepseek", "kimi",    "minimax", "mimo",
                                     "gpt_oss", "llama",    "mistral", "mixtral",  "bailing", "ernie"};

bool begins_with_any(std::string_view name, std::string_view list) {
  while (!list.empty()) {
    const size_t end = std::min(list.find('|'), list.size());
    if (name.starts_with(list.substr(0, end))) return true;
    list = list.substr(std::min(end + 1, list.size()));
  }
  return false;
}

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
  Partners(const LayerStack& stack, const Json& config, std::vector<Lack>& lacks)
      : stack_(stack), type_(config_string(config, "model_type")), lacks_(lacks) {}

  void run() {
    std::map<std::string, std::set<std::string>> of_any;  // a module of one layer is compared between layers elsewhere
    bool is_gated = false;
    for (const auto& [index, parts] : stack_.layers)
      for (const auto& [parent, modules] : modules_by_parent(parts)) {
        of_any[parent].insert(modules.begin(), modules.end());
        is_gated = is_gated || (modules.count("gate_proj") && modules.count("up_proj"));
      }
    for (const auto& [parent, modules] : of_any) {
      for (const Partner& p : partners) require(parent, modules, p.has, p.needs);
      if (is_gated && modules.count("down_proj"))
        require(parent, modules, "up_proj", {"gate_proj"}),
            require(parent, modules, "down_proj", {"up_proj", "gate_up_proj"});
      if (is_gated && modules.count("down_proj")) require(parent, modules, "gate_proj", {"up_proj"});
    }
    const std::set<std::string>& top = of_any[""];
    const bool pairs = std::any_of(std::begin(two_norms), std::end(two_norms),
                                   [&](const char* type) { return type_.starts_with(type); });
    if (!pairs) return;
    require("", top, "input_layernorm", {"post_attention_layernorm"});
    require("", top, "post_attention_layernorm", {"input_layernorm"});
  }

  void check_required(int64_t layers) {
    for (const Required& r : required) {
      if (!type_.starts_with(r.model_type)) continue;
      const bool any = std::any_of(stack_.layers.begin(), stack_.layers.end(), [&](const auto& layer) {
        return has(layer.second, *r.if_any ? r.if_any : "mlp.experts");
      });
      for (const char* part : r.parts) {
        const std::string_view name = std::string_view(part).substr(0, std::string_view(part).find('|'));
        std::vector<int64_t> missing;
        for (const auto& [index, parts] : stack_.layers)
          if (index < layers && !has(parts, part)) missing.push_back(index);
        if (any && !missing.empty() && !is_known(name))
          lacks_.push_back({fmt::format("{}.{}.{}", stack_.root, ranges(missing), name),
                            fmt::format("missing in {} of {}; all layers of a {} have it", missing.size(),
                                        counted(layers, "layer"), type_)});
      }
    }
  }

  /// Scales without what they scale, routers without their matrix, and matrices alone without scales.
  void check_tensors() {
    for (const auto& [index, parts] : stack_.layers)
      for (const auto& [name, part] : parts) {
        const size_t dot = name.rfind('.');
        if (dot == name.npos) continue;
        const std::string module = name.substr(0, dot), last = name.substr(dot + 1);
        if (is_known(module)) continue;
        const std::string at = fmt::format("{}.{}.{}", stack_.root, index, module);
        const bool is_router = (module.ends_with(".gate") || module.ends_with(".router")) && !has_inner(parts, module);
        if ((is_router || is_scale(last)) && !has_matrix(parts, module))
          lacks_.push_back({at + ".weight", fmt::format("missing beside {}", last)});
        else if (is_quantized(part) && last == "weight" && !has_scale(parts, module) &&
                 has_scaled_sister(parts, module))
          lacks_.push_back({at, fmt::format("{} without scales", name_of(part.first->dtype))});
      }
  }

 private:
  /// Whether it was said of this part in some layer.
  bool is_known(std::string_view part) const {
    while (part.ends_with('.')) part.remove_suffix(1);
    return std::any_of(lacks_.begin(), lacks_.end(),
                       [&](const Lack& l) { return l.where.find(part) != std::string::npos; });
  }

  static bool is_scale(std::string_view last) {
    return last == "weight_scale" || last == "weight_scale_inv" || last == "scale" || last == "scales";
  }
  static bool is_quantized(const LayerPart& part) {
    return part.first->dtype == Dtype::F8_E4M3 || is_code_dtype(part.first->dtype);
  }
  static bool has_matrix(const LayerParts& parts, const std::string& module) {
    for (const char* name : {".weight", ".weight_packed", ".blocks", ".qweight"})
      if (parts.count(module + name)) return true;
    return false;
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

  /// Whether a module beside it has the same dtype and scales.
  static bool has_scaled_sister(const LayerParts& parts, const std::string& module) {
    const std::string parent = module.substr(0, module.rfind('.') + 1);
    const Dtype dtype = parts.at(module + ".weight").first->dtype;
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
      const std::string& name = part.first;
      return name.starts_with(parent) && name.ends_with(".weight") && part.second.first->dtype == dtype &&
             has_scale(parts, name.substr(0, name.rfind('.')));
    });
  }

  static bool has(const LayerParts& parts, std::string_view list) {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return begins_with_any(part.first, list); });
  }

  void require(const std::string& parent, const std::set<std::string>& modules, const char* has,
               const std::vector<const char*>& needs) {
    if (!modules.count(has)) return;
    if (std::any_of(needs.begin(), needs.end(), [&](const char* n) { return modules.count(n) > 0; })) return;
    const std::string at = stack_.root + ".*." + (parent.empty() ? "" : parent + ".");
    if (!is_known(at + needs.front()))
      lacks_.push_back({at + needs.front(), fmt::format("missing in every layer that has {}{}", at, has)});
  }

  const LayerStack& stack_;
  const std::string type_;
  std::vector<Lack>& lacks_;
};

}  // namespace

void check_partners(const LayerStack& stack, int64_t layers, const Json& config, std::vector<Lack>& lacks) {
  Partners partners_of(stack, config, lacks);
  partners_of.run();
  partners_of.check_required(layers);
  partners_of.check_tensors();
}

}  // namespace mxfp4
