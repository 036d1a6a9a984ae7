// What experts are that are not MXFP4. Sources: bitsandbytes' Params4bit (absmax, quant_map), GPTQ and AWQ (qweight),
// compressed-tensors 0.20.0 (weight_packed, weight_shape, weight_global_scale), modelopt 0.47.0 (weight_scale_2),
// auto-round 0.16.1 qlinear_fp.py (MXFP8: weight and weight_scale).
#include "src/models/precision.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/models/families.h"
#include "src/models/layer_names.h"

namespace mxfp4 {

namespace {

/// The tensors of one projection of one expert, or of one projection of all experts, which follow one another.
struct Linear {
  std::string_view module, stem;  // the stem is the name before the last parts
  std::vector<const Tensor*> tensors = {};

  std::string_view last(const Tensor& t) const { return std::string_view(t.name).substr(stem.size()); }
  bool has(std::initializer_list<std::string_view> words) const {
    return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor* t) { return contains_any(last(*t), words); });
  }
};

/// The largest tensor: a weight is larger than its scales.
const Tensor* weight_of(const Linear& linear) {
  return *std::max_element(linear.tensors.begin(), linear.tensors.end(),
                           [](const Tensor* a, const Tensor* b) { return a->bytes < b->bytes; });
}

const Tensor* scales_of(const Linear& linear, const Tensor* weight) {
  for (const Tensor* t : linear.tensors)
    if (const std::string_view last = linear.last(*t);
        t != weight && last.find("scale") != last.npos && last.find("input") == last.npos && !last.ends_with("2"))
      return t;
  return nullptr;
}

bool is_byte(Dtype d) { return d == Dtype::U8 || d == Dtype::I8 || d == Dtype::F8_E8M0; }

/// Whether there is one scale byte for 32 bytes of each row.
bool has_mxfp8_scales(const Tensor& weight, const Tensor* scales) {
  return scales && is_byte(scales->dtype) && weight.shape.size() >= 2 && scales->shape.size() == weight.shape.size() &&
         scales->shape[0] == weight.shape[0] && scales->shape.back() * group == weight.shape.back();
}

/// Whether each byte of the weight's rows holds two columns by the config, so that a scale for 32 bytes is one for 64
/// codes.
bool holds_codes(const Json& config, const Linear& linear, const Tensor& weight) {
  const char* key = hidden_key(config);
  if (contains_any(linear.stem.substr(linear.module.size()), {"down", "w2"}))
    key = intermediate_key(config) ? intermediate_key(config) : "intermediate_size";
  return config_count(config, key, -1) == weight.shape.back() * 2;
}

std::string precision_of(const Json& config, const Linear& linear) {
  const Tensor& w = *weight_of(linear);
  const Tensor* scales = scales_of(linear, &w);
  const std::string_view name = linear.last(w);
  if (name.find("scale") != name.npos) return "";  // scales without a weight
  const bool is_column = w.dtype == Dtype::U8 && w.shape.size() == 2 && w.shape[1] == 1;
  if (linear.has({"absmax", "quant_map", "bitsandbytes"}) || is_column)
    return linear.has({"__fp4"}) ? "bitsandbytes FP4" : "bitsandbytes NF4";
  if (linear.has({"qweight", "qzeros", "g_idx"})) return "GPTQ's or AWQ's INT4";
  if (linear.has({"weight_shape"}) || w.dtype == Dtype::I32) return "INT4";
  if (w.dtype == Dtype::F8_E4M3 || w.dtype == Dtype::F8_E5M2)
    return has_mxfp8_scales(w, scales) ? "MXFP8"
           : scales && scales->dtype == Dtype::F32 && scales->shape.size() >= 2 && scales->shape.back() > 1
               ? "block FP8"
               : name_of(w.dtype);
  if (!is_code_dtype(w.dtype)) return w.dtype == Dtype::U32 ? "" : name_of(w.dtype);
  if (linear.has({"weight_scale_2", "scale2", "weight_global_scale"}) || (scales && scales->dtype == Dtype::F8_E4M3))
    return "NVFP4";
  const bool is_of_bytes = w.dtype != Dtype::F4 && has_mxfp8_scales(w, scales) && !holds_codes(config, linear, w);
  return is_of_bytes ? "MXFP8 stored as U8" : "";
}

/// The module and stem of an expert's tensor; an empty module for any other.
Linear linear_of(const Tensor& t) {
  const std::string_view name = t.name;
  if (ExpertName parts; parse_expert(name, parts))
    return {parts.module, name.substr(0, name.size() - parts.suffix.size())};
  constexpr std::string_view key = ".experts.";
  const size_t at = name.find(key);
  if (at == name.npos || contains_any(name.substr(0, at), {"shared"})) return {};
  const std::string_view module = name.substr(0, at + key.size() - 1);
  for (const char* proj : {".gate_up_proj", ".gate_and_up_proj", ".gate_proj", ".up_proj", ".down_proj", ".w13", ".w2"})
    if (name.substr(module.size()).starts_with(proj)) {
      if (name.ends_with("bias") || contains_any(name, {"lora_"})) return {};
      return {module, name.substr(0, module.size() + std::string_view(proj).size())};
    }
  return {};
}

/// The first tensor called scale that has the codes' stem in its name; null if there is none.
const Tensor* scales_beside(const Checkpoint& ck, const Tensor& codes) {
  const std::string stem = codes.name.substr(0, codes.name.find_last_of("._"));
  for (auto t = ck.first_from(stem); t != ck.tensors.end() && t->name.starts_with(stem); ++t)
    if (t->name.find("scale", stem.size()) != t->name.npos) return &*t;
  return nullptr;
}

/// Whether one scale byte for 16 bytes of codes stands beside the tensor.
bool looks_like_mxfp4(const Checkpoint& ck, const Tensor& codes) {
  const Tensor* scales = scales_beside(ck, codes);
  return is_code_dtype(codes.dtype) && codes.shape.size() > 1 && scales && is_byte(scales->dtype) &&
         scales->bytes * 16 == codes.bytes;
}

/// Says of one half of MXFP4 that the other half is missing or has NVFP4's dtype; empty for other tensors.
const char* other_half(const Checkpoint& ck, const Tensor& t) {
  if (!is_byte(t.dtype)) return "";
  if (t.name.find("scale") != t.name.npos) return ", scales without codes";
  const Tensor* scales = scales_beside(ck, t);
  return !scales ? ", without scales" : scales->dtype == Dtype::F8_E4M3 ? ", with scales of NVFP4" : "";
}

}  // namespace

std::map<std::string_view, Precisions> precisions_of_experts(const Checkpoint& ck) {
  std::map<std::string_view, Precisions> out;
  Linear now;
  const auto end = [&] {
    if (!now.module.empty()) out[now.module].emplace(precision_of(ck.config, now), weight_of(now));
  };
  for (const Tensor& t : ck.tensors) {
    Linear linear = linear_of(t);
    if (linear.module.empty()) continue;
    if (linear.stem != now.stem) {
      end();
      now = std::move(linear);
    }
    now.tensors.push_back(&t);
  }
  end();
  return out;
}

void note_other_precisions(const Checkpoint& ck, Model& model) {
  struct Found {
    std::string_view first;
    int64_t modules = 0;
  };
  std::map<std::string_view, Found> found;  // by precision
  const auto all = precisions_of_experts(ck);
  for (const auto& [module, precisions] : all) {
    if (precisions.size() != 1 || precisions.begin()->first.empty()) continue;
    Found& f = found[precisions.begin()->first];
    if (f.modules++ == 0) f.first = module;
  }
  for (const auto& [precision, f] : found)
    model.notes.push_back(fmt::format("{}{}: experts are {}, copied unchanged", f.first,
                                      f.modules > 1 ? fmt::format(" and {} more", f.modules - 1) : "", precision));
}

void describe_experts(const Checkpoint& ck, Problems& problems) {
  const Json* q = quantization_config(ck.config);
  const std::string method = q ? json_string(*q, "quant_method") : "";
  const auto all = precisions_of_experts(ck);
  const Tensor* weight = nullptr;
  std::string precision;
  for (const auto& [module, precisions] : all)
    for (const auto& [name, first] : precisions)
      if (!weight || (is_byte(first->dtype) && !is_byte(weight->dtype))) precision = name, weight = first;
  for (const Tensor& t : ck.tensors)
    if (all.empty() && contains_any(t.name, {"expert", "switch_mlp", "sparse_moe."}) &&
        !contains_any(t.name, {"shared"}) && t.shape.size() > 1 && (!weight || t.bytes > weight->bytes))
      weight = &t;
  if (!weight)
    return problems.error(ck.dir, "no routed experts found; a mixture-of-experts checkpoint in MXFP4 was expected{}",
                          method.empty() ? "" : fmt::format(", config.json says quant_method {}", printable(method)));
  if (precision == name_of(weight->dtype)) precision.clear();
  if (precision.empty() && looks_like_mxfp4(ck, *weight))
    return problems.error(ck.dir, "the names of MXFP4 tensors are not known for model_type '{}'; {} is {}, {}",
                          printable(config_string(ck.config, "model_type")), printable(weight->name),
                          describe(weight->dtype, weight->shape),
                          method.empty() ? "and config.json has no quant_method"
                                         : fmt::format("config.json says quant_method {}", printable(method)));
  problems.error(ck.dir, "no MXFP4 routed experts found; {} is {}{}, {}", printable(weight->name),
                 describe(weight->dtype, weight->shape),
                 precision.empty() ? other_half(ck, *weight) : ", taken for " + precision,
                 method.empty() ? "and config.json has no quant_method; a checkpoint published in MXFP4 was expected"
                 : method == "mxfp4" ? "but config.json says quant_method mxfp4"
                                     : fmt::format("config.json says quant_method {}", printable(method)));
}

}  // namespace mxfp4
