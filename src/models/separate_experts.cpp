// Layers with separate tensors for each expert, MODULE.ID.PROJ.SUFFIX, for every family that stores experts in this
// form.
#include <algorithm>
#include <map>

#include "src/models/families.h"
#include "src/models/layer_names.h"
#include "src/models/precision.h"
#include "src/models/router.h"

namespace mxfp4 {

namespace {

struct Pair {
  const Tensor *codes = nullptr, *scales = nullptr;
};
struct Parts {
  Pair gate, up, down;
};
struct Module {
  std::map<int64_t, Parts> experts;
  const Tensor* largest = nullptr;  // codes under any name
};
using Modules = std::map<std::string_view, Module>;

Modules group_by_module(const Checkpoint& ck, const ExpertNames& names) {
  Modules modules;
  ExpertName name;
  for (const Tensor& t : ck.tensors) {
    if (!parse_expert(t.name, name)) continue;
    Module& module = modules[name.module];
    if (!module.largest || t.bytes > module.largest->bytes) module.largest = &t;
    Parts& parts = module.experts[name.id];
    Pair* pair = name.proj == names.gate   ? &parts.gate
                 : name.proj == names.up   ? &parts.up
                 : name.proj == names.down ? &parts.down
                                           : nullptr;
    if (pair && name.suffix == names.codes) pair->codes = &t;
    if (pair && name.suffix == names.scales) pair->scales = &t;
  }
  return modules;
}

/// Checks that the ids are 0 .. rows - 1, one for each row of the router.
void check_ids(const MoeLayer& layer, const std::map<int64_t, Parts>& experts, int64_t rows, Problems& problems) {
  std::vector<int64_t> missing, surplus;
  for (int64_t id = 0; id < rows; ++id)
    if (!experts.count(id)) missing.push_back(id);
  for (const auto& [id, parts] : experts)
    if (id >= rows) surplus.push_back(id);
  if (!missing.empty()) problems.error(layer.module, "experts {} missing, the router has {}", ranges(missing), rows);
  if (!surplus.empty()) problems.error(layer.module, "surplus experts {}, the router has {}", ranges(surplus), rows);
}

struct Reader {
  const Checkpoint& ck;
  const ExpertNames& names;
  Problems& problems;
  std::string module;

  /// K of one projection. If the projection is incomplete or not MXFP4, reports a problem and returns 0.
  int64_t columns(const Pair& p, int64_t id, const char* proj) const {
    const std::string at = fmt::format("{}.{}.{}", module, id, proj);
    if (!p.codes && !p.scales)
      return problems.error(at, "missing; experts without gate, up and down are not supported"), 0;
    if (!p.codes)
      return problems.error(ck.where(*p.scales), "scales without codes ({}.{} expected)", at, names.codes), 0;
    if (!p.scales)
      return problems.error(ck.where(*p.codes), "no scales beside it ({}.{} expected)", at, names.scales), 0;
    if (p.codes->shape.size() != 2)
      return problems.error(ck.where(*p.codes), "{}, [rows, columns/2] expected",
                            describe(p.codes->dtype, p.codes->shape)),
             0;
    return check_pair(ck, *p.codes, {p.codes->shape[0]}, p.codes->shape[1], *p.scales, problems);
  }

  Projection proj(const Pair& p, int64_t k) const {
    const int64_t scale_row = k / group * bits_of(p.scales->dtype) / 8;
    return {{p.codes, 0, p.codes->bytes, 0, k / 2}, {p.scales, 0, p.scales->bytes, 0, scale_row}, {}};
  }

  /// Adds the expert. The first expert sets the layer's sizes; all others must have the same.
  void add(MoeLayer& layer, int64_t id, const Parts& p, Dtype codes, Dtype scales) const {
    const int64_t gate = columns(p.gate, id, names.gate), up = columns(p.up, id, names.up),
                  down = columns(p.down, id, names.down);
    if (!gate || !up || !down) return;
    if (layer.experts.empty()) {
      layer.hidden = gate;
      layer.intermediate = down;
    }
    const auto check = [&](const Pair& pair, int64_t k, int64_t want_n, int64_t want_k) {
      if (pair.codes->shape[0] != want_n || k != want_k)
        problems.error(ck.where(*pair.codes), "{} rows of {} columns, {} of {} expected", pair.codes->shape[0], k,
                       want_n, want_k);
      if (pair.codes->dtype != codes || pair.scales->dtype != scales)
        problems.error(ck.where(*pair.codes), "{} codes and {} scales, the layer's other experts have {} and {}",
                       name_of(pair.codes->dtype), name_of(pair.scales->dtype), name_of(codes), name_of(scales));
    };
    check(p.gate, gate, layer.intermediate, layer.hidden);
    check(p.up, up, layer.intermediate, layer.hidden);
    check(p.down, down, layer.hidden, layer.intermediate);
    layer.experts.push_back({proj(p.gate, gate), proj(p.up, up), proj(p.down, down)});
  }
};

/// The first codes that may be MXFP4, else any codes; null if there are none.
const Tensor* first_codes(const Module& module) {
  const Tensor* first = nullptr;
  for (const auto& [id, parts] : module.experts)
    for (const Pair* p : {&parts.gate, &parts.up, &parts.down}) {
      if (p->codes && is_code_dtype(p->codes->dtype)) return p->codes;
      if (!first) first = p->codes;
    }
  return first;
}

/// Whether no tensor has the name of an expert's codes or scales.
bool is_unknown(const Module& module) {
  return std::all_of(module.experts.begin(), module.experts.end(), [](const auto& expert) {
    const Parts& p = expert.second;
    return !p.gate.codes && !p.gate.scales && !p.up.codes && !p.up.scales && !p.down.codes && !p.down.scales;
  });
}

/// Whether the module is to be read. Experts of two precisions in one module are a problem.
bool is_mxfp4(const Checkpoint& ck, std::string_view module, const Precisions& precisions, Problems& problems) {
  const auto& [last, weight] = *precisions.rbegin();
  if (precisions.size() == 1) return last.empty();
  const std::string first = precisions.begin()->first.empty() ? "MXFP4" : precisions.begin()->first;
  problems.error(ck.where(*weight), "{}, but other experts of {} are {}; experts of a layer in one precision expected",
                 last, module, first);
  return false;
}

void read_separate_experts(const Checkpoint& ck, const std::map<std::string_view, Precisions>& precisions,
                           const ExpertNames& names, Model& model, Problems& problems) {
  for (const auto& [name, module] : group_by_module(ck, names)) {
    if (!is_mxfp4(ck, name, precisions.at(name), problems)) continue;
    const auto& experts = module.experts;
    MoeLayer layer;
    layer.module = name;
    const Tensor* first = first_codes(module);
    if (is_unknown(module)) {
      problems.error(ck.where(*module.largest), "experts' tensors called {}, {} and {} with .{} and .{} expected",
                     names.gate, names.up, names.down, names.codes, names.scales);
      continue;
    }
    if (!parse_layer(name, layer.kind, layer.index)) {
      problems.error(name, "no layer number in the name");
      continue;
    }
    const int64_t rows = routed_experts(ck, layer, experts.rbegin()->first + 1, problems);
    const int64_t before = problems.count();
    if (rows >= 0) check_ids(layer, experts, rows, problems);
    const Reader reader{ck, names, problems, layer.module};
    const Tensor* scales = nullptr;
    for (const auto& [id, parts] : experts)
      if (!scales) scales = parts.gate.scales;
    for (const auto& [id, parts] : experts)
      reader.add(layer, id, parts, first ? first->dtype : Dtype::I8, scales ? scales->dtype : Dtype::F8_E8M0);
    if (problems.count() == before) model.layers.push_back(std::move(layer));
  }
}

/// The names of a checkpoint with separate experts, by the first MXFP4 codes with scales beside them. If no expert has
/// both, `usual` with the checkpoint's projections.
ExpertNames find_expert_names(const Checkpoint& ck, const std::map<std::string_view, Precisions>& precisions,
                              const ExpertNames& usual) {
  constexpr const char* projections[][3] = {{"w1", "w3", "w2"}, {"gate_proj", "up_proj", "down_proj"}};
  constexpr const char* suffixes[][2] = {
      {"weight_packed", "weight_scale"}, {"weight", "weight_scale"}, {"weight", "scale"},
      {"weight", "weight_scale_inv"},    {"weight", "scales"},       {"blocks", "scales"}};
  ExpertNames otherwise = usual;
  ExpertName name;
  for (const Tensor& t : ck.tensors) {
    if (!is_code_dtype(t.dtype) || !parse_expert(t.name, name)) continue;
    if (!precisions.at(name.module).count("")) continue;
    for (const auto& p : projections) {
      if (name.proj != p[0] && name.proj != p[1] && name.proj != p[2]) continue;
      otherwise = {p[0], p[1], p[2], usual.codes, usual.scales};
      for (const auto& s : suffixes) {
        if (name.suffix != s[0]) continue;
        const std::string stem = t.name.substr(0, t.name.size() - name.suffix.size());
        if (ck.find(stem + s[1])) return {p[0], p[1], p[2], s[0], s[1]};
      }
    }
  }
  return otherwise;
}

}  // namespace

bool has_expert_suffix(const Checkpoint& ck, std::string_view suffix) {
  ExpertName name;
  return std::any_of(ck.tensors.begin(), ck.tensors.end(),
                     [&](const Tensor& t) { return parse_expert(t.name, name) && name.suffix == suffix; });
}

bool read_spelled_experts(const Checkpoint& ck, const ExpertNames& usual, Model& model, Problems& problems) {
  const auto precisions = precisions_of_experts(ck);
  const int64_t before = problems.count();
  read_separate_experts(ck, precisions, find_expert_names(ck, precisions, usual), model, problems);
  if (model.layers.empty() && problems.count() == before) return false;
  read_settings(ck, model, problems);
  check_config(ck, model, experts_key(ck.config), hidden_key(ck.config), intermediate_key(ck.config), problems);
  return true;
}

}  // namespace mxfp4
