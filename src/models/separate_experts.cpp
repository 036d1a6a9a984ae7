// Experts that stand one by one, MODULE.ID.PROJ.SUFFIX: shared by every family that stores them so.
#include <algorithm>
#include <map>

#include "src/models/families.h"

namespace mxfp4 {

namespace {

struct Pair {
  const Tensor *codes = nullptr, *scales = nullptr;
};
struct Parts {
  Pair gate, up, down;
};
using Modules = std::map<std::string_view, std::map<int64_t, Parts>>;

Modules group_by_module(const Checkpoint& ck, const ExpertNames& names) {
  Modules modules;
  ExpertName name;
  for (const Tensor& t : ck.tensors) {
    if (!parse_expert(t.name, name)) continue;
    Parts& parts = modules[name.module][name.id];
    Pair* pair = name.proj == names.gate   ? &parts.gate
                 : name.proj == names.up   ? &parts.up
                 : name.proj == names.down ? &parts.down
                                           : nullptr;
    if (!pair) continue;
    if (name.suffix == names.codes) pair->codes = &t;
    if (name.suffix == names.scales) pair->scales = &t;
  }
  return modules;
}

/// "3, 7-9, 40": ids as ranges.
std::string ranges(const std::vector<int64_t>& ids) {
  std::string out;
  for (size_t i = 0; i < ids.size();) {
    size_t j = i;
    while (j + 1 < ids.size() && ids[j + 1] == ids[j] + 1) ++j;
    out += out.empty() ? "" : ", ";
    out += i == j ? fmt::format("{}", ids[i]) : fmt::format("{}-{}", ids[i], ids[j]);
    i = j + 1;
  }
  return out;
}

/// Ids must be 0 .. rows - 1, as many as the router has rows.
bool check_ids(const MoeLayer& layer, const std::map<int64_t, Parts>& experts, int64_t rows, Problems& problems) {
  std::vector<int64_t> missing, surplus;
  for (int64_t id = 0; id < rows && missing.size() < 100'000; ++id)
    if (!experts.count(id)) missing.push_back(id);
  for (const auto& [id, parts] : experts)
    if (id >= rows) surplus.push_back(id);
  if (!missing.empty())
    problems.error(printable(layer.module), "experts {} missing, the router has {}", ranges(missing), rows);
  if (!surplus.empty())
    problems.error(printable(layer.module), "surplus experts {}, the router has {}", ranges(surplus), rows);
  return missing.empty() && surplus.empty();
}

struct Reader {
  const Checkpoint& ck;
  const ExpertNames& names;
  Problems& problems;
  std::string module;

  /// K of one projection; 0 and a problem where it is not complete or no MXFP4.
  int64_t columns(const Pair& p, int64_t id, const char* proj) const {
    const std::string at = printable(fmt::format("{}.{}.{}", module, id, proj));
    if (!p.codes && !p.scales)
      return problems.error(at, "missing; experts without gate, up and down are not supported"), 0;
    if (!p.codes)
      return problems.error(ck.where(*p.scales), "scales without codes ({}.{} expected)", at, names.codes), 0;
    if (!p.scales)
      return problems.error(ck.where(*p.codes), "no scales beside it ({}.{} expected)", at, names.scales), 0;
    auto scales = p.scales->shape;
    if (scales.size() > 2) scales.erase(std::remove(scales.begin(), scales.end(), 1), scales.end());
    if (p.codes->shape.size() != 2)
      return problems.error(ck.where(*p.codes), "{}, [rows, columns/2] expected",
                            describe(p.codes->dtype, p.codes->shape)),
             0;
    return check_pair(ck, *p.codes, p.codes->shape, *p.scales, scales, problems);
  }

  Proj proj(const Pair& p, int64_t k) const {
    const int64_t scale_row = k / group * bits_of(p.scales->dtype) / 8;
    return {{p.codes, 0, p.codes->bytes, 0, k / 2}, {p.scales, 0, p.scales->bytes, 0, scale_row}, {}};
  }

  /// Adds the expert; its sizes must be the layer's, which the first one sets.
  void add(MoeLayer& layer, int64_t id, const Parts& p, Dtype codes, Dtype scales) const {
    const int64_t gate = columns(p.gate, id, names.gate), up = columns(p.up, id, names.up),
                  down = columns(p.down, id, names.down);
    if (!gate || !up || !down) return;
    if (layer.experts.empty()) layer.hidden = gate, layer.intermediate = down;
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

/// A tensor of the module that shows its dtype.
const Tensor* first_codes(const std::map<int64_t, Parts>& experts) {
  for (const auto& [id, parts] : experts)
    for (const Pair* p : {&parts.gate, &parts.up, &parts.down})
      if (p->codes) return p->codes;
  return nullptr;
}

}  // namespace

void read_separate_experts(const Checkpoint& ck, const ExpertNames& names, Model& model, Problems& problems) {
  for (const auto& [module, experts] : group_by_module(ck, names)) {
    MoeLayer layer;
    layer.module = module;
    const Tensor* first = first_codes(experts);
    if (first && !is_code_dtype(first->dtype)) {
      model.notes.push_back(
          fmt::format("{}: experts are {}, passed through", printable(module), name_of(first->dtype)));
      continue;
    }
    if (!parse_layer(module, layer.space, layer.index)) {
      problems.error(printable(module), "no layer number in the name");
      continue;
    }
    const int64_t rows = router_rows(ck, layer, problems);
    if (rows >= 0 && !check_ids(layer, experts, rows, problems)) continue;
    const Reader reader{ck, names, problems, layer.module};
    const Tensor* scales = nullptr;
    for (const auto& [id, parts] : experts)
      if (!scales) scales = parts.gate.scales;
    for (const auto& [id, parts] : experts)
      reader.add(layer, id, parts, first ? first->dtype : Dtype::I8, scales ? scales->dtype : Dtype::F8_E8M0);
    if (!layer.experts.empty()) model.layers.push_back(std::move(layer));
  }
}

std::optional<ExpertNames> find_expert_names(const Checkpoint& ck) {
  constexpr const char* projections[][3] = {{"w1", "w3", "w2"}, {"gate_proj", "up_proj", "down_proj"}};
  constexpr const char* suffixes[][2] = {
      {"weight_packed", "weight_scale"}, {"weight", "weight_scale"}, {"weight", "scale"},
      {"weight", "weight_scale_inv"},    {"weight", "scales"},       {"blocks", "scales"}};
  ExpertName name;
  for (const Tensor& t : ck.tensors) {
    if (!is_code_dtype(t.dtype) || !parse_expert(t.name, name)) continue;
    for (const auto& p : projections)
      for (const auto& s : suffixes) {
        if ((name.proj != p[0] && name.proj != p[1] && name.proj != p[2]) || name.suffix != s[0]) continue;
        const std::string stem = t.name.substr(0, t.name.size() - name.suffix.size());
        if (ck.find(stem + s[1])) return ExpertNames{p[0], p[1], p[2], s[0], s[1]};
      }
  }
  return std::nullopt;
}

bool has_expert_suffix(const Checkpoint& ck, std::string_view suffix) {
  ExpertName name;
  return std::any_of(ck.tensors.begin(), ck.tensors.end(),
                     [&](const Tensor& t) { return parse_expert(t.name, name) && name.suffix == suffix; });
}

void read_spelled_experts(const Checkpoint& ck, const ExpertNames& usual, const char* hidden, Model& model,
                          Problems& problems) {
  read_separate_experts(ck, find_expert_names(ck).value_or(usual), model, problems);
  if (model.layers.empty()) return;
  read_settings(ck, model);
  check_config(ck, model, experts_key(ck.config), hidden, "moe_intermediate_size", problems);
}

}  // namespace mxfp4
