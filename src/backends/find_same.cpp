// Which built-in backend makes the same bytes as a layout file.
#include <array>

#include "src/backends/layout_file.h"

namespace mxfp4 {

Matrix form_of(const Backend& b, const Parameter& p, Role role, Part part, LayerSize real, const Model& model) {
  const LayerSize padded = padded_size(b, real);
  const Shape from = matrix_size(role, real), to = matrix_size(role, padded);
  Matrix m;
  m.views = role == Role::w13 ? 2 : 1;
  m.real = {from.n / m.views, row_bytes(part, p, from.b)};
  m.padded = {to.n, round_up(row_bytes(part, p, to.b), p.columns)};
  m.order = p.order.value_or(b.w13_order(model));
  m.pad = p.pad;
  m.add = p.add;
  return m;
}

namespace {

/// Whether two forms of a storage have the same source, or the same pad, at every place.
bool is_same(const Matrix& a, const Matrix& b, Shape storage) {
  if (a.real != b.real || a.add != b.add) return false;
  const auto byte = [](const Matrix& m, int64_t n, int64_t at) -> std::array<int64_t, 3> {
    if (n < m.padded.n && at < m.real.b)
      if (const RowSource from = m.source(n); from.row < m.real.n) return {1, from.view, from.row};
    return {0, m.pad_byte(n, at), 0};
  };
  for (int64_t n = 0; n < storage.n; ++n)
    for (const int64_t at : {int64_t(0), a.real.b, a.padded.b, b.padded.b})  // between these nothing changes
      if (at < storage.b && byte(a, n, at) != byte(b, n, at)) return false;
  return true;
}

/// All dtypes of one byte count as equal.
bool is_alike(Dtype a, Dtype b) { return a == b || (bits_of(a) == 8 && bits_of(b) == 8); }

/// The parameter's layout. If its `values` are the scales themselves, the equal built-in layout is used, if there is
/// one.
Layout layout_of(const Parameter& p, Shape padded) {
  const ByModes* by = std::get_if<ByModes>(&p.layout);
  if (!by || !p.values || !p.values->are_scales()) return p.layout;
  return find_equal(*by->modes, padded).value_or(p.layout);
}

bool is_same(const Backend& file, const Backend& b, Role role, Part part, const Model& model) {
  Parameter ours = file.parameter(role, part);
  const Parameter& theirs = b.parameter(role, part);
  if (ours.name.empty() || theirs.name.empty()) return ours.name.empty();
  const Matrix a = form_of(file, ours, role, part, file.only, model),
               t = form_of(b, theirs, role, part, file.only, model);
  ours.layout = layout_of(ours, a.padded);
  if (!is_alike(ours.dtype, theirs.dtype) || std::holds_alternative<ByModes>(ours.layout)) return false;
  const Shape storage = storage_of(ours.layout, a.padded);
  if (!fits(theirs.layout, t.padded) || storage_of(theirs.layout, t.padded) != storage || !is_same(a, t, storage))
    return false;
  return ours.layout.index() == theirs.layout.index() ||
         modes_of(ours.layout, storage) == modes_of(theirs.layout, storage);
}

}  // namespace

const Backend* find_same(const Backend& file, bool pairs) {
  Model model;
  model.pairs = pairs;
  const auto is_it = [&](const Backend& b) {
    if (b.rewrite) return false;
    for (Role role : roles)
      for (Part part : parts)
        if (!is_same(file, b, role, part, model)) return false;
    return true;
  };
  const auto likeness = [&](const Backend& b) { return 2 * (file.engine == b.engine) + (file.name == b.name); };
  const Backend* best = nullptr;
  for (const Backend* b : backends())
    if ((!best || likeness(*b) > likeness(*best)) && is_it(*b)) best = b;
  return best;
}

}  // namespace mxfp4
