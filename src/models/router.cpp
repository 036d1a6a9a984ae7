// A layer's router, as a second count of its experts.
#include "src/models/router.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/models/layer_names.h"

namespace mxfp4 {

namespace {

/// In the module (Granite's block_sparse_moe), beside it, or beside the module that holds only them (Gemma-4:
/// layers.N.moe.experts, layers.N.router.proj). Sources: loaders of vLLM 0.33.0 (gpt_oss, afmoe, hy_v3, hy_v4, gemma4,
/// granitemoe, longcat_flash) and SGLang 0.5.23.
constexpr const char* routers[] = {
    ".gate.weight",               // most
    ".router.weight",             // GPT-OSS, Granite in new names
    ".router.gate.weight",        // AFMoE, Hy3, Hy4
    ".router.proj.weight",        // Gemma-4
    ".router.layer.weight",       // Granite, DBRX
    ".router.classifier.weight",  // LongCat
    ".gate.wg.weight",            // Hunyuan
    ".gate.weight_packed",        // quantized
    ".router.weight_packed",
};

/// "model.layers.0" of "model.layers.0.moe"; empty if `module` is a layer itself or in none.
std::string module_above(const std::string& module) {
  const size_t dot = module.rfind('.');
  const bool is_layer = dot == module.npos || module.find_first_not_of("0123456789", dot + 1) == module.npos;
  return is_layer ? std::string() : module.substr(0, dot);
}

/// Tensors beside the experts that may be the router: a matrix with a row for each expert, or with such a name.
std::vector<std::string> candidates(const Checkpoint& ck, const std::string& parent, const MoeLayer& layer,
                                    int64_t experts) {
  std::vector<std::string> out;
  const int64_t other = rows_without_experts(ck.config);
  for (auto t = ck.first_from(parent + "."); t != ck.tensors.end() && t->name.starts_with(parent + "."); ++t) {
    if (t->shape.size() != 2 || t->name.starts_with(layer.module + ".")) continue;
    const std::string_view name = std::string_view(t->name).substr(parent.size());
    const bool has_rows = t->shape[0] == experts || t->shape[0] == experts + other;
    const bool has_name = contains_any(name, {"router", "routing", "gating", "classifier"});
    const bool is_other = contains_any(name, {"attn", "attention", "shared", "norm", "_proj."});
    if ((has_rows && !is_other) || has_name)
      out.push_back(fmt::format("{} {}", printable(name.substr(1)), describe(t->dtype, t->shape)));
  }
  return out;
}

}  // namespace

std::span<const char* const> router_names() { return routers; }

int64_t rows_without_experts(const Json& config) {
  const bool has_sinks = config_flag(config, "shared_expert_sink").value_or(false);
  return config_count(config, "zero_expert_num", 0) + (has_sinks ? config_count(config, "n_shared_experts", 0) : 0);
}

FoundRouter find_router(const Checkpoint& ck, const std::string& module) {
  for (std::string parent = module; !parent.empty(); parent = module_above(parent))
    for (const char* router : routers)
      if (const Tensor* t = ck.find(parent + router)) return {t, parent, router};
  return {};
}

int64_t routed_experts(const Checkpoint& ck, const MoeLayer& layer, int64_t experts, Problems& problems) {
  if (experts > max_experts)
    return problems.error(layer.module, "{} experts, at most {} expected", experts, max_experts), -1;
  const FoundRouter router = find_router(ck, layer.module);
  if (const Tensor* t = router.tensor) {
    if (t->shape.size() != 2 || t->bytes == 0 || t->shape[0] > max_experts)
      return problems.error(ck.where(*t), "{} is no router, [experts, hidden] expected", describe(t->dtype, t->shape)),
             -1;
    const int64_t rows = t->shape[0], other = rows_without_experts(ck.config);
    return rows == experts || rows <= other ? rows : rows - other;
  }
  for (std::string parent = layer.module.substr(0, layer.module.rfind('.')); !parent.empty();
       parent = module_above(parent))
    if (const auto seen = candidates(ck, parent, layer, experts); !seen.empty()) {
      problems.warn(layer.module, "no router of a known name, so {} are not compared with it; beside them: {}",
                    counted(experts, "expert"), fmt::join(seen, ", "));
      return experts;
    }
  problems.error(layer.module, "no router beside it ({0}.router.weight or {0}.gate.weight expected)",
                 layer.module.substr(0, layer.module.rfind('.')));
  return -1;
}

void check_routers(const Checkpoint& ck, const Model& model, Problems& problems) {
  const std::string& of_first = model.layers.front().module;
  const FoundRouter router = find_router(ck, of_first);
  if (!router.tensor) return;
  const std::string experts = of_first.substr(router.parent.size());
  const std::string block = module_above(router.parent).empty() ? "" : router.parent.substr(router.parent.rfind('.'));
  const std::string name = block + router.name;
  for (const Tensor& t : ck.tensors) {
    if (!t.name.ends_with(name) || !is_in_layer(t.name)) continue;
    const std::string module = t.name.substr(0, t.name.size() - std::string_view(router.name).size()) + experts + ".";
    const auto next = ck.first_from(module);
    if (next == ck.tensors.end() || !next->name.starts_with(module))
      problems.error(ck.where(t), "a router without experts ({}* expected)", module);
  }
}

}  // namespace mxfp4
