// compressed-tensors' mxfp4-pack-quantized (Qwen3-MoE, GLM, Hy3, AFMoE, Gemma-4, LongCat, MiniMax, by llm-compressor):
//
//   MODULE.E.gate_proj|up_proj|down_proj.weight_packed U8 [n, k/2], .weight_scale U8 [n, k/32]
//
// There is no global scale. NVFP4 has the same .weight_packed, scales for 16 columns and a global scale. Source:
// compressed_tensors compressors/mxfp4/base.py, quant_scheme.py.
#include <algorithm>

#include "src/base/log.h"
#include "src/models/families.h"

namespace mxfp4 {

namespace {

/// Whether a pattern of simple parts matches the whole name: text, "\\." and ".*". Of other patterns nothing is said.
bool matches_simple(std::string_view pattern, std::string_view name) {
  if (pattern.empty() || pattern == "$") return name.empty();
  if (pattern.starts_with(".*")) {
    for (size_t from = 0; from <= name.size(); ++from)
      if (matches_simple(pattern.substr(2), name.substr(from))) return true;
    return false;
  }
  const size_t length = pattern.starts_with("\\.") ? 2 : 1;
  const char c = pattern[length - 1];
  if (length == 1 && std::string_view("\\.[](){}?*+|^$").find(c) != std::string_view::npos) return false;
  return !name.empty() && name[0] == c && matches_simple(pattern.substr(length), name.substr(1));
}

/// Engines look for BF16 weights of modules that the config ignores.
void check_ignored(const Json& q, const Model& model, Problems& problems) {
  const auto ignore = q.find("ignore");
  if (ignore == q.end() || !ignore->is_array()) return;
  for (const Json& entry : *ignore) {
    if (!entry.is_string()) continue;
    const std::string& text = entry.get_ref<const std::string&>();
    const std::string_view pattern = std::string_view(text).substr(text.starts_with("re:") ? 3 : 0);
    const bool is_long = pattern.size() > 200 || std::count(pattern.begin(), pattern.end(), '*') > 4;
    for (const MoeLayer& layer : model.layers)
      if (!is_long && (text.starts_with("re:") ? matches_simple(pattern, layer.module) : pattern == layer.module))
        problems.error(config_name, "quantization_config.ignore has '{}', but {} is MXFP4", printable(text),
                       layer.module);
  }
}

}  // namespace

void check_compressed_tensors(const Checkpoint& ck, const Model& model, Problems& problems) {
  const Json* q = quantization_config(ck.config);
  if (!q)
    return problems.error(config_name,
                          "no quantization_config, but the experts are MXFP4 in compressed-tensors' names");
  if (!mentions(*q, "format", "mxfp4-pack-quantized"))
    problems.error(config_name, "quantization_config has no format 'mxfp4-pack-quantized', but the experts are MXFP4");
  check_ignored(*q, model, problems);
}

namespace {

constexpr ExpertNames compressed_tensors_names = {"gate_proj", "up_proj", "down_proj", "weight_packed", "weight_scale"};

bool matches_compressed_tensors(const Checkpoint& ck) {
  const Json* q = quantization_config(ck.config);
  const bool is_method = q && json_string(*q, "quant_method") == "compressed-tensors";
  return has_expert_suffix(ck, "weight_packed") || (is_method && has_expert_suffix(ck, "weight_scale"));
}

void read_compressed_tensors(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (read_spelled_experts(ck, compressed_tensors_names, model, problems))
    check_compressed_tensors(ck, model, problems);
}

}  // namespace

const Family compressed_tensors = {"compressed-tensors", matches_compressed_tensors, read_compressed_tensors};

}  // namespace mxfp4
