// Layers with all experts in one tensor, for every family that stores experts in this form.
#include "src/base/log.h"
#include "src/models/families.h"
#include "src/models/router.h"

namespace mxfp4 {

namespace {

/// The three tensors of one projection, checked: n rows of k columns in each of E experts.
struct Stacked {
  const Tensor *blocks = nullptr, *scales = nullptr, *bias = nullptr;
  int64_t experts = 0, n = 0, k = 0;
};

bool read_stacked(const Checkpoint& ck, const StackedNames& names, const std::string& name, Stacked& s,
                  Problems& problems) {
  s.blocks = ck.find(name + names.codes);
  s.scales = ck.find(name + names.scales);
  s.bias = ck.find(name + names.bias);
  if (!s.blocks) return problems.error(name + names.codes, "missing"), false;
  if (!s.scales)
    return problems.error(ck.where(*s.blocks), "no scales beside it ({}{} expected)", name, names.scales), false;
  const auto& b = s.blocks->shape;
  const bool in_groups = b.size() == 4 && b[3] == group * bits_of(Dtype::F4) / bits_of(s.blocks->dtype);
  if (!in_groups && b.size() != 3)
    return problems.error(ck.where(*s.blocks),
                          "{}, [experts, rows, columns/32, 16] or [experts, rows, columns/2] expected",
                          describe(s.blocks->dtype, b)),
           false;
  if (b[0] > max_experts)
    return problems.error(ck.where(*s.blocks), "{} experts, at most {} expected", b[0], max_experts), false;
  s.experts = b[0];
  s.n = b[1];
  const int64_t row_elements = s.blocks->bytes == 0 ? 0 : in_groups ? b[2] * b[3] : b[2];
  const bool is_flat = s.scales->shape.size() == 2;  // Quark's converter: [experts * rows, columns/32]
  const std::vector<int64_t> rows = is_flat ? std::vector<int64_t>{b[0] * b[1]} : std::vector<int64_t>{b[0], b[1]};
  s.k = check_pair(ck, *s.blocks, rows, row_elements, *s.scales, problems);
  if (s.k > 0 && s.bias && (s.bias->dtype != Dtype::BF16 || s.bias->shape != std::vector<int64_t>{s.experts, s.n}))
    return problems.error(ck.where(*s.bias), "{}, BF16 [{}, {}] expected", describe(s.bias->dtype, s.bias->shape),
                          s.experts, s.n),
           false;
  return s.k > 0;
}

/// The rows first, first + step, first + 2 step ..
struct Rows {
  int64_t first, step;
};

Projection rows_of(const Stacked& s, int64_t e, Rows rows, Rows bias) {
  const auto slice = [&](const Tensor* t, Rows r, int64_t row_bytes) {
    const int64_t piece = s.n * row_bytes;
    return t ? Slice{{t, e * piece, piece}, r.first * row_bytes, r.step * row_bytes} : Slice{};
  };
  return {slice(s.blocks, rows, s.k / 2), slice(s.scales, rows, s.k / group * bits_of(s.scales->dtype) / 8),
          slice(s.bias, bias, 2)};
}

}  // namespace

void read_stacked_layer(const Checkpoint& ck, const StackedNames& names, MoeLayer layer, bool pairs, Model& model,
                        Problems& problems) {
  Stacked w13, w2;
  const bool read13 = read_stacked(ck, names, layer.module + names.w13, w13, problems);
  const bool read2 = read_stacked(ck, names, layer.module + names.w2, w2, problems);
  const int64_t experts = routed_experts(ck, layer, w13.experts, problems);
  if (!read13 || !read2) return;
  if (w13.n != w2.k * 2 || w13.k != w2.n || w13.experts != w2.experts)
    return problems.error(ck.where(*w13.blocks), "{} with {} rows of {} columns, {} with {} of {} expected by {}{}",
                          counted(w13.experts, "expert"), w13.n, w13.k, w2.experts, w2.k * 2, w2.n,
                          printable(w2.blocks->name.substr(layer.module.size() + 1)),
                          w13.n == w2.k ? "; gate or up is missing" : "");
  if (experts >= 0 && experts != w13.experts)
    return problems.error(ck.where(*w13.blocks), "{}, the router has {}", counted(w13.experts, "expert"), experts);
  if (!w13.bias != !w2.bias)
    return problems.error(layer.module, "a bias on one projection only, on both or none expected");
  if (!model.layers.empty() && model.bias != (w13.bias != nullptr))
    return problems.error(layer.module, "{} bias, {} has {}", w13.bias ? "a" : "no", model.layers.front().module,
                          model.bias ? "one" : "none");
  if (!has_room(model, layer.module, w13.experts, problems)) return;
  layer.hidden = w13.k;
  layer.intermediate = w2.k;
  model.bias = w13.bias != nullptr;
  const auto up = [&](bool in_pairs) { return in_pairs ? Rows{1, 2} : Rows{layer.intermediate, 1}; };
  const auto gate = [](bool in_pairs) { return Rows{0, in_pairs ? 2 : 1}; };
  const bool bias_pairs = pairs && !names.bias_in_halves;
  for (int64_t e = 0; e < w13.experts; ++e)
    layer.experts.push_back({rows_of(w13, e, gate(pairs), gate(bias_pairs)), rows_of(w13, e, up(pairs), up(bias_pairs)),
                             rows_of(w2, e, gate(false), gate(false))});
  model.layers.push_back(std::move(layer));
}

}  // namespace mxfp4
