#include "src/models/model.h"

#include <algorithm>
#include <unordered_set>

#include "src/base/log.h"
#include "src/base/number.h"
#include "src/models/families.h"
#include "src/models/layer_names.h"
#include "src/models/precision.h"
#include "src/models/router.h"

namespace mxfp4 {

namespace {

bool parse_number(std::string_view text, int64_t& out) {
  out = whole_number(text);
  return out >= 0 && (text[0] != '0' || text.size() == 1);  // 007 would be a second name of 7
}

/// One byte per scale, or F32.
bool is_scale_dtype(Dtype d) { return d == Dtype::U8 || d == Dtype::F8_E8M0 || d == Dtype::F32; }

/// The number of columns in `row_elements` elements of a code dtype.
int64_t columns_of(Dtype codes, int64_t row_elements) { return codes == Dtype::F4 ? row_elements : row_elements * 2; }

/// Whether these are OpenAI's own files of GPT-OSS. No engine loads their names in MXFP4: vLLM 0.33.0 has none of them,
/// and SGLang 0.5.23's gpt_oss.py decodes mlp1_weight to BF16 and then has no parameter of that name.
bool refuse_original(const Checkpoint& ck, Problems& problems) {
  const Tensor* t = ck.find("block.0.mlp.mlp1_weight.blocks");
  if (t) problems.error(ck.where(*t), "this is GPT-OSS in OpenAI's own naming (original/); use the repository's root");
  return t != nullptr;
}

/// Collects the tensors that belong to no layer's experts, in file order.
void collect_rest(const Checkpoint& ck, Model& model) {
  std::unordered_set<const Tensor*> taken;
  for (const MoeLayer& layer : model.layers)
    for (const Expert& e : layer.experts)
      for (const Projection* p : {&e.gate, &e.up, &e.down})
        for (const Slice* s : {&p->codes, &p->scales, &p->bias}) taken.insert(s->piece.tensor);
  for (const Tensor& t : ck.tensors)
    if (!taken.count(&t)) model.rest.push_back(&t);
  std::sort(model.rest.begin(), model.rest.end(), [](const Tensor* a, const Tensor* b) {
    return a->file != b->file ? a->file < b->file : a->offset != b->offset ? a->offset < b->offset : a->name < b->name;
  });
}

/// Adds a note with the number of other linears in MXFP4, recognised by dtype and by the ratio of columns.
void count_other_linears(const Checkpoint& ck, Model& model) {
  int64_t count = 0;
  for (const Tensor* t : model.rest) {
    if (!is_code_dtype(t->dtype) || t->shape.size() != 2) continue;
    const size_t dot = t->name.rfind('.');
    if (dot == t->name.npos) continue;
    for (const char* suffix : {".weight_scale", ".scale", ".weight_scale_inv", ".scales"}) {
      const Tensor* s = ck.find(t->name.substr(0, dot) + suffix);
      const int64_t columns = t->shape[1] * (t->dtype == Dtype::F4 ? 1 : 2);
      if (s && s->shape == std::vector<int64_t>{t->shape[0], columns / group} && is_scale_dtype(s->dtype)) ++count;
    }
  }
  if (count)
    model.notes.push_back(fmt::format("{} MXFP4 linears outside the routed experts are copied unchanged", count));
}

/// Whether a tensor with a name among the experts is of no known kind. Engines read scales of activations, Granite's
/// router and a norm behind experts. They skip Inkling's original_shape (the shape before packing) and the adapter
/// (lora_A, lora_B) that is published beside its experts.
bool is_unread(const Tensor& t, const MoeLayer& layer) {
  const std::string_view name = std::string_view(t.name).substr(layer.module.size());
  return !name.starts_with(".router.") && !name.ends_with(".original_shape") &&
         !contains_any(name, {".input_", ".lora_A.", ".lora_B.", ".post_expert_norm."});
}

/// Reports tensors among a layer's experts that no engine would look for after packing. Scales of activations are left,
/// since engines read them.
void check_leftovers(const Checkpoint& ck, const Model& model, Problems& problems) {
  const std::unordered_set<const Tensor*> rest(model.rest.begin(), model.rest.end());
  for (const MoeLayer& layer : model.layers) {
    int64_t count = 0;
    const Tensor* first = nullptr;
    for (auto t = ck.first_from(layer.module + "."); t != ck.tensors.end() && t->name.starts_with(layer.module + ".");
         ++t)
      if (rest.count(&*t) && ck.find(t->name) == &*t && is_unread(*t, layer) && count++ == 0) first = &*t;
    if (!count) continue;
    const bool is_zero_point = contains_any(first->name, {"zero_point", "qzeros"});
    problems.error(ck.where(*first), "not known among MXFP4 experts ({} such in {}){}", count, layer.module,
                   is_zero_point ? "; MXFP4 is symmetric, so it has no zero points" : "");
  }
}

/// A router cannot choose more experts than a layer has.
void check_top_k(const Model& model, Problems& problems) {
  for (const MoeLayer& layer : model.layers)
    if (model.router.top_k > int64_t(layer.experts.size()) && layer.kind == LayerKind::model)
      return problems.error(config_name, "the router chooses {}, but {} has {}", counted(model.router.top_k, "expert"),
                            layer.module, counted(int64_t(layer.experts.size()), "expert"));
}

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

/// Whether codes [columns/2, rows] and scales [columns/32, rows] have both been turned.
bool are_both_turned(const std::vector<int64_t>& codes, const std::vector<int64_t>& scales) {
  return codes.size() > 1 && codes.size() == scales.size() && codes.back() == scales.back() &&
         columns_of(Dtype::U8, codes[codes.size() - 2]) == scales[scales.size() - 2] * group;
}

/// What scales of another shape may be.
std::string hint_of(const std::vector<int64_t>& codes, const std::vector<int64_t>& shape, std::vector<int64_t> expected,
                    int64_t columns) {
  const int64_t last = shape.empty() ? 0 : shape.back(), per = last > 0 ? columns / last : 0;
  std::swap(expected.back(), expected[expected.size() - 2]);
  if (shape == expected) return "; the last two dimensions are swapped";
  if (are_both_turned(codes, shape)) return "; the last two dimensions of codes and scales are swapped";
  if (per == 16) return "; one scale per 16 is NVFP4";
  if (per == 48) return "; 3/4 byte a code is MXFP6";
  if (per == 128) return "; looks like block FP8";
  return per > 1 && per != group ? fmt::format("; one scale per {}", per) : "";
}

/// Layers behind the main ones are for multi-token prediction. Engines count these from 0.
void tell_mtp(const Json& config, Model& model) {
  int64_t main = 0;
  for (const char* key : layer_keys) main = main > 0 ? main : config_count(config, key, 0);
  for (MoeLayer& layer : model.layers)
    if (main > 0 && layer.kind == LayerKind::model && layer.index >= main) {
      layer.kind = LayerKind::mtp;
      layer.index -= main;
    }
}

}  // namespace

bool parse_layer(std::string_view module, LayerKind& kind, int64_t& index) {
  size_t start = 0;
  bool after_key = false, found = false;
  kind = LayerKind::model;
  while (start <= module.size()) {
    const size_t dot = std::min(module.find('.', start), module.size());
    const std::string_view part = module.substr(start, dot - start);
    int64_t number;
    if (after_key && parse_number(part, number)) {
      index = number;
      found = true;
    }
    const bool is_mtp = names_mtp(part);
    after_key = part == "layers" || is_mtp;
    if (is_mtp && !found) kind = LayerKind::mtp;
    start = dot + 1;
  }
  return found;
}

bool parse_expert(std::string_view name, ExpertName& out) {
  constexpr std::string_view key = ".experts.";
  const size_t at = name.find(key);
  if (at == name.npos) return false;
  out.module = name.substr(0, at + key.size() - 1);
  const std::string_view tail = name.substr(at + key.size());
  const size_t dot1 = tail.find('.');
  if (dot1 == tail.npos || !parse_number(tail.substr(0, dot1), out.id)) return false;
  const size_t dot2 = tail.find('.', dot1 + 1);
  if (dot2 == tail.npos) return false;
  out.proj = tail.substr(dot1 + 1, dot2 - dot1 - 1);
  out.suffix = tail.substr(dot2 + 1);
  return true;
}

bool is_code_dtype(Dtype d) { return d == Dtype::U8 || d == Dtype::I8 || d == Dtype::F4; }

int64_t check_pair(const Checkpoint& ck, const Tensor& codes, std::vector<int64_t> rows, int64_t row_elements,
                   const Tensor& scales, Problems& problems) {
  const auto complain = [&](const Tensor& t, const std::string& text) {
    return problems.error(ck.where(t), "{}", text), 0;
  };
  if (!is_code_dtype(codes.dtype))
    return complain(codes, fmt::format("{} codes, U8, I8 or F4 expected", name_of(codes.dtype)));
  if (!is_scale_dtype(scales.dtype)) {
    const char* hint = scales.dtype == Dtype::BF16 || scales.dtype == Dtype::F16 ? "; looks like INT4 or FP8"
                       : scales.dtype == Dtype::F8_E4M3                          ? "; looks like NVFP4"
                                                                                 : "";
    return complain(scales, fmt::format("{} scales, U8, F8_E8M0 or F32 expected{}", name_of(scales.dtype), hint));
  }
  if (codes.bytes == 0) return complain(codes, describe(codes.dtype, codes.shape) + " is empty");
  const int64_t columns = columns_of(codes.dtype, row_elements);
  if (columns % group) return complain(codes, fmt::format("{} columns, a multiple of {} expected", columns, group));
  rows.push_back(columns / group);
  if (without_ones(scales.shape) == without_ones(rows)) return columns;
  return complain(scales, fmt::format("{} for codes {}, [{}] expected{}", describe(scales.dtype, scales.shape),
                                      describe(codes.dtype, codes.shape), fmt::join(rows, ", "),
                                      hint_of(codes.shape, scales.shape, rows, columns)));
}

void check_config(const Checkpoint& ck, const Model& model, const char* experts, const char* hidden,
                  const char* intermediate, Problems& problems) {
  const int64_t e = config_count(ck.config, experts, -1);
  int64_t other = 0, main = 0;
  for (const MoeLayer& l : model.layers) {
    const MoeLayer& first = model.layers.front();
    const auto size = [&](const char* key, int64_t is, int64_t of_first) {
      const int64_t says = config_count(ck.config, key, -1);
      if (says >= 0 && is != says)
        problems.error(l.module, "{} columns or rows, config.json says {} = {}", is, key, says);
      else if (says < 0 && is != of_first)
        problems.error(l.module, "{} columns or rows, {} has {}", is, first.module, of_first);
    };
    size(hidden, l.hidden, first.hidden);
    size(intermediate, l.intermediate, first.intermediate);
    if (l.kind == LayerKind::model) {
      ++main;
      other += e >= 0 && int64_t(l.experts.size()) != e;
    }
  }
  if (other == 0) return;
  if (other == main)
    problems.error(config_name, "{} = {}, but the layers have {}", experts, e,
                   counted(model.layers[0].experts.size(), "expert"));
  else
    problems.warn(config_name, "{} = {}, but {} of {} layers have another number of experts", experts, e, other, main);
}

Model recognise(const Checkpoint& ck, const ModelOptions& options, Problems& problems) {
  Model model;
  model.model_type = config_string(ck.config, "model_type");
  model.attention = {config_count(ck.config, "num_attention_heads", 0),
                     config_count(ck.config, "num_key_value_heads", 0)};
  if (!ck.complete || refuse_original(ck, problems)) return model;
  const int64_t before = problems.count();
  for (const Family& family : families) {
    if (!family.matches(ck)) continue;
    model.family = family.name;
    model.method = family.method;
    family.read(ck, options, model, problems);
    break;
  }
  if (model.layers.empty() && problems.count() == before) {
    model.family.clear();
    describe_experts(ck, problems);
  }
  tell_mtp(ck.config, model);
  std::sort(model.layers.begin(), model.layers.end(), [](const MoeLayer& a, const MoeLayer& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.index < b.index;
  });
  for (size_t i = 1; i < model.layers.size(); ++i)
    if (const MoeLayer& a = model.layers[i - 1], &b = model.layers[i]; a.kind == b.kind && a.index == b.index)
      problems.error(b.module, "{} is layer {}, too", a.module, a.index);
  collect_rest(ck, model);
  check_top_k(model, problems);
  check_leftovers(ck, model, problems);
  if (!model.layers.empty()) check_routers(ck, model, problems);
  if (problems.any()) return model;
  note_other_precisions(ck, model);
  count_other_linears(ck, model);
  return model;
}

bool has_room(const Model& model, const std::string& where, int64_t experts, Problems& problems) {
  constexpr int64_t most = 262'144;  // five times the number of a large model
  if (int64_t(model.layers.size() + 1) * experts <= most) return true;
  return problems.error(where, "more than {} stacked experts in all", most), false;
}

}  // namespace mxfp4
