#include "src/inspect/diff_cause.h"

#include <algorithm>
#include <cstring>

#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// One expert's rows without padding, unpacked: gate then up, or down.
struct Unpacked {
  std::vector<uint8_t> bytes;
  Matrix matrix;  // over bytes
  PadReport pads;

  Unpacked(const Plan& plan, const PackedTensor& t, int64_t expert, Device& device, const uint8_t* packed) {
    const Expert& e = plan.model->layers[size_t(t.layer)].experts[size_t(expert)];
    uint8_t* none[2] = {};
    MutableMatrix m = matrix_of<uint8_t>(plan, t, e, none);
    bytes.resize(size_t(m.views * m.real.n * m.real.b));
    matrix.views = m.views;
    matrix.real = m.real;
    matrix.padded = m.padded;
    matrix.order = m.order;
    matrix.pad = m.pad;
    matrix.add = m.add;
    for (int v = 0; v < m.views; ++v) {
      m.view[v] = {bytes.data() + v * m.real.n * m.real.b, m.real.b};
      matrix.view[v] = {m.view[v].data, m.view[v].stride};
    }
    const UnpackItem item{t.parameter->layout, packed, m};
    device.unpack({&item, 1}, {&pads, 1});
  }
};

std::string pack(Device& device, const Layout& layout, const Matrix& m) {
  std::string out(size_t(packed_bytes(layout, m.padded)), '\0');
  const PackItem item{layout, m, reinterpret_cast<uint8_t*>(out.data())};
  device.pack({&item, 1});
  return out;
}

/// Whether `theirs` has the bytes that backend b writes for the same rows.
bool is_form_of(const Backend& b, const Plan& plan, const PackedTensor& t, Device& device, const Unpacked& ours,
                const std::string& theirs) {
  const Parameter& p = b.parameter(t.role, t.part);
  if (p.name.empty() || b.rewrite || p.dtype != t.parameter->dtype || p.values || t.parameter->values) return false;
  Matrix m = ours.matrix;
  m.order = p.order.value_or(b.w13_order(*plan.model));
  m.pad = p.pad;
  m.add = p.add;
  const LayerSize size = rank_size(b, plan.model->layers[size_t(t.layer)], plan.tp_size);
  const int64_t k = t.role == Role::w13 ? size.hidden : size.intermediate;
  m.padded = {t.role == Role::w13 ? 2 * size.intermediate : size.hidden, t.part == Part::codes ? k / 2
                                                                         : t.part == Part::scales
                                                                             ? k / group
                                                                             : ours.matrix.padded.b};
  return fits(p.layout, m.padded) && packed_bytes(p.layout, m.padded) == int64_t(theirs.size()) &&
         pack(device, p.layout, m) == theirs;
}

/// Names another backend that writes the bytes `theirs` for the same rows. `first` is tried first.
std::string other_backend(const Plan& plan, const PackedTensor& t, Device& device, const Unpacked& ours,
                          const std::string& theirs, const Backend* first) {
  std::vector<const Backend*> all = backends();
  if (first) all.insert(all.begin(), first);
  for (const Backend* b : all)
    if (b != plan.backend && is_form_of(*b, plan, t, device, ours, theirs))
      return fmt::format("these are the bytes of {} of {}, layout version {}", b->name, b->engine, b->layout_version);
  return {};
}

std::string other_order(const PackedTensor& t, Device& device, const Unpacked& ours, const std::string& theirs) {
  if (t.role != Role::w13) return {};
  for (int64_t block : {0, 1, 8, 16, 32, 64})
    for (bool up_first : {false, true}) {
      Matrix m = ours.matrix;
      m.order = {block, up_first};
      if (m.order == ours.matrix.order || (block && m.padded.n % (2 * block))) continue;
      if (pack(device, t.parameter->layout, m) == theirs)
        return fmt::format("other row order of w13: {} in B, {} in A", describe(m.order), describe(ours.matrix.order));
    }
  return {};
}

/// Names a wrong conversion of scale bytes.
std::string scale_cast(const Unpacked& ours, const Unpacked& theirs) {
  const auto& a = ours.bytes;
  const auto& b = theirs.bytes;
  const uint8_t shift = uint8_t(b[0] - a[0]);
  bool all_zero = true, same_shift = true;
  for (size_t i = 0; i < a.size(); ++i) {
    all_zero &= b[i] == 0;
    same_shift &= uint8_t(b[i] - a[i]) == shift;
  }
  if (all_zero) return "scales were cast by value to an integer: all are 0";
  if (same_shift && shift)
    return fmt::format("every scale byte is {:+} (FP8 activations of Marlin add 6)", int(int8_t(shift)));
  return {};
}

}  // namespace

std::string likely_cause(const Plan& plan, const PackedTensor& t, int64_t expert, Device& device,
                         const TwoSlices& slices) {
  if (plan.backend->rewrite) return {};
  const Unpacked a(plan, t, expert, device, slices.ours), b(plan, t, expert, device, slices.theirs);
  if (a.bytes == b.bytes && b.pads.copies.wrong) return "in B, " + describe(b.pads.copies);
  if (a.bytes == b.bytes)
    return fmt::format("pad bytes only: {:#04x} in row {}, byte {} of B, {:#04x} in A", b.pads.is, b.pads.n, b.pads.b,
                       b.pads.expected);
  const std::string bytes(slices.theirs, slices.theirs + t.slice_bytes);
  std::string cause = other_order(t, device, a, bytes);
  if (cause.empty()) cause = other_backend(plan, t, device, a, bytes, slices.their_backend);
  if (cause.empty() && t.part == Part::scales && !t.parameter->values) cause = scale_cast(a, b);
  return cause;
}

}  // namespace mxfp4
