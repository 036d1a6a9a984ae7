// Packs the golden layers with this project's layouts, and computes them with kernels that do not include the layouts.
// Then with a mistake in a layout, which unpacking cannot find: two of its modes are exchanged.
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/moe/check/moe_kernel.h"
#include "kernels/moe/moe_compare.h"
#include "kernels/pack/device.h"
#include "kernels/pack/humming.h"
#include "tests/support/golden_layer.h"

using namespace mxfp4;

namespace {

/// The layout with its modes `mode` and `mode` + 1 exchanged; none if that is no other layout.
std::optional<ModeLayout> exchanged(const Modes& right, Shape storage, size_t mode) {
  Modes wrong = right;
  std::swap(wrong[mode], wrong[mode + 1]);
  if (fewest(wrong) == fewest(right)) return std::nullopt;
  try {
    return ModeLayout(storage, wrong);
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // no byte would be a whole one
  }
}

/// The matrix's bytes in the engine's layout.
std::vector<uint8_t> pack(const Layout& layout, const Matrix& m, bool& restored) {
  const auto rows = size_t(m.real.n), bytes = size_t(m.real.b);
  std::vector<uint8_t> packed(packed_bytes(layout, m.padded)), back(size_t(m.views) * rows * bytes);
  const auto cpu = open_cpu();
  const PackItem item{layout, m, packed.data()};
  cpu->pack({&item, 1});

  UnpackItem inverse{layout, packed.data(), {}};
  inverse.matrix.views = m.views;
  for (int v = 0; v < m.views; ++v) inverse.matrix.view[v] = {back.data() + size_t(v) * rows * bytes, m.real.b};
  inverse.matrix.real = m.real;
  inverse.matrix.padded = m.padded;
  inverse.matrix.add = m.add;
  inverse.matrix.order = m.order;
  PadReport report;
  cpu->unpack({&inverse, 1}, {&report, 1});
  restored = restored && report.wrong == 0;
  for (int v = 0; v < m.views; ++v)
    for (size_t r = 0; r < rows; ++r)
      restored = restored && std::memcmp(m.view[v].data + int64_t(r) * m.view[v].stride,
                                         back.data() + (size_t(v) * rows + r) * bytes, bytes) == 0;
  return packed;
}

/// An expert's gate and up, or down, rewritten by Humming's W4A8.
struct Rewritten {
  std::vector<uint8_t> codes, scales;
  float residual = 0;
  explicit Rewritten(const std::vector<SourceMatrix>& parts) {
    const auto gather = [](std::vector<uint8_t>& to, const SourceRows& rows, int64_t n, int64_t bytes) {
      for (int64_t r = 0; r < n; ++r)
        to.insert(to.end(), rows.data + r * rows.stride, rows.data + r * rows.stride + bytes);
    };
    for (const SourceMatrix& p : parts) {
      gather(codes, p.codes, p.n, p.k / 2);
      gather(scales, p.scales, p.n, p.k / 32);
    }
    residual = humming_rewrite(codes, scales).residual;
  }
  /// Part `index` of several parts of the same size.
  SourceMatrix part(SourceMatrix like, int64_t index) const {
    like.codes = {codes.data() + index * like.n * like.k / 2, like.k / 2};
    like.scales = {scales.data() + index * like.n * like.k / 32, like.k / 32};
    return like;
  }
};

/// The layouts of codes and scales.
struct Layouts {
  Layout codes, scales;
  explicit Layouts(const Packing& p) : codes(find_layout(p.codes).value()), scales(find_layout(p.scales).value()) {}
};

/// All experts of the layer, packed, with the golden biases.
struct PackedLayer {
  std::vector<uint8_t> w13, w13_scale, w2, w2_scale;
  std::vector<float> residuals[2];
  bool restored = true;  // unpacking restores the source's bytes, and every pad is right
  PackedLayer(const Packing& packing, const MoeCase& layer, const Layouts& of_w13) {
    const Layouts of_w2(packing);
    const MoeConfig& c = layer.shards[0].config;
    const int64_t h = c.padded_hidden, i = c.padded_intermediate;
    const bool rewritten = layer.shards[0].packed.w13_residual != nullptr;
    for (SourceExpert e : layer.shards[0].source) {
      const Rewritten gate_up({e.gate, e.up}), down({e.down});
      if (rewritten) {
        e = {gate_up.part(e.gate, 0), gate_up.part(e.up, 1), down.part(e.down, 0)};
        residuals[0].push_back(gate_up.residual);
        residuals[1].push_back(down.residual);
      }
      const auto add = [&](std::vector<uint8_t>& to, const std::vector<uint8_t>& more) {
        to.insert(to.end(), more.begin(), more.end());
      };
      // codes (2 to a byte) or scales (32 columns each) of gate and up, or of down
      const auto part = [&](const Layout& layout, const std::vector<SourceRows>& rows, int64_t columns, uint8_t a) {
        const bool down = rows.size() == 1;
        Matrix m;
        m.views = int(rows.size());
        for (size_t v = 0; v < rows.size(); ++v) m.view[v] = {rows[v].data, rows[v].stride};
        m.real = {down ? c.hidden : c.intermediate, (down ? c.intermediate : c.hidden) / columns};
        m.padded = {down ? h : 2 * i, (down ? i : h) / columns};
        m.order = {c.w13_block, c.w13_up_first};
        m.add = a;
        return pack(layout, m, restored);
      };
      add(w13, part(of_w13.codes, {e.gate.codes, e.up.codes}, 2, 0));
      add(w13_scale, part(of_w13.scales, {e.gate.scales, e.up.scales}, 32, packing.add));
      add(w2, part(of_w2.codes, {e.down.codes}, 2, 0));
      add(w2_scale, part(of_w2.scales, {e.down.scales}, 32, packing.add));
    }
  }
};

/// Whether the kernel computes the layer from the packed tensors.
bool is_right(MoeCase layer, const PackedLayer& packed, const std::vector<double>& reference, bool cuda) {
  CHECK(packed.restored);
  MoeShard& shard = layer.shards[0];
  PackedMoe& p = shard.packed;
  p.w13 = packed.w13.data();
  p.w13_scale = packed.w13_scale.data();
  p.w2 = packed.w2.data();
  p.w2_scale = packed.w2_scale.data();
  if (p.w13_residual) {
    p.w13_residual = packed.residuals[0].data();
    p.w2_residual = packed.residuals[1].data();
  }
  const auto kernel = open_moe_kernel(*layer.format, shard.config, p, cuda);
  const std::vector<float> got = kernel->run(layer.x, shard.routing).out;
  return compare(reference, got, cuda ? cuda_tolerance : layer.format->tolerance).right();
}

/// The kernel's result is wrong after any exchange of modes in one of w13's layouts.
void check_exchanges(const Packing& packing, const MoeCase& layer, Layout Layouts::*part, int64_t columns) {
  const std::vector<double> reference = reference_of(layer);
  const MoeConfig& c = layer.shards[0].config;
  Layouts layouts(packing);
  const Layout layout = layouts.*part;
  const Shape storage = storage_of(layout, {2 * c.padded_intermediate, c.padded_hidden / columns});
  const Modes right = modes_of(layout, storage);
  int exchanges = 0;
  for (size_t mode = 0; mode + 1 < right.size(); ++mode) {
    const auto wrong = exchanged(right, storage, mode);
    if (!wrong) continue;
    INFO(name_of(layout) << ", mode " << mode);
    ByModes given;
    given.modes = &*wrong;
    layouts.*part = given;
    CHECK(!is_right(layer, PackedLayer(packing, layer, layouts), reference, false));
    ++exchanges;
  }
  CHECK((exchanges > 0 || right.size() == 2));  // two modes: plain rows
}

/// Returns the number of golden layers that have the packing and were computed.
int check_layouts(const Packing& packing, std::span<const GoldenLayer> golden, bool cuda) {
  int computed = 0;
  for (const GoldenLayer& whole : golden) {
    const MoeCase layer = golden_case(whole, packing);
    if (!layer.shards[0].packed.w13) continue;  // the layer has no such packing
    if (cuda && !cuda_kernel_missing(*layer.format).empty()) continue;
    CHECK(is_right(layer, PackedLayer(packing, layer, Layouts(packing)), reference_of(layer), cuda));
    if (!cuda && !computed) {
      check_exchanges(packing, layer, &Layouts::codes, 2);
      check_exchanges(packing, layer, &Layouts::scales, 32);
    }
    ++computed;
  }
  return computed;
}

int check_layouts(bool cuda) {
  const std::vector<GoldenLayer> golden(std::begin(packed_layers), std::end(packed_layers));
  int computed = 0;
  for (const Packing& packing : packings) {
    INFO(packing.tag);
    const int layers = check_layouts(packing, golden, cuda);
    CHECK((cuda || layers > 0));
    computed += layers;
  }
  return computed;
}

}  // namespace

TEST_CASE("what the layouts pack, the kernels compute, and only they notice exchanged modes") {
  CHECK(check_layouts(false) > 0);
}

TEST_CASE("what the layouts pack, the kernels compute on a GPU", "[gpu]") {
  if (const std::string missing = cuda_kernel_missing(kernel_format("marlin")); !missing.empty()) {
    WARN("skipped: " << missing);
    return;
  }
  CHECK(check_layouts(true) > 0);
}
