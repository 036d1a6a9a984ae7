#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <set>

#include "kernels/pack/device.h"
#include "tests/support/golden.h"
#include "tests/support/random_bytes.h"

using namespace mxfp4;

namespace {

/// The form of a golden w13's input: one matrix, or two halves that begin with gate or with up.
enum class Halves { none, gate_up, up_gate };

/// A golden matrix: its layout and its canonical input.
struct Vector {
  const char* name;  // tensor in matrix_*.safetensors
  const char* layout;
  const char* input;  // codes, scales or bias
  Halves halves = Halves::none;
  RowOrder order{};
  uint8_t add = 0;  // with add, the input bytes are first limited to 255 - add
};
/// Matrices that do not have the name of their layout, or need a changed input.
const Vector special_vectors[] = {
    {"marlin_a8.scales", "marlin_a8.scales", "scales", Halves::none, {}, 6},
    {"trtllm_gated.codes", "trtllm.codes", "codes", Halves::up_gate, {1, true}},
    {"trtllm_gated.scales", "trtllm.scales", "scales", Halves::up_gate, {1, true}},
    {"triton_hopper_A.codes", "triton_hopper_a.codes", "codes"},
    {"triton_hopper_B.codes", "triton_hopper_b.codes", "codes"},
    {"triton_hopper_C.codes", "triton_hopper_c.codes", "codes"},
    {"deepgemm_mega.codes_gated", "plain", "codes", Halves::gate_up, {8, false}},
    {"deepgemm_mega.scales_gated", "deepgemm_mega.scales", "scales", Halves::gate_up, {8, false}},
    {"aiter_a16w4_gated.codes", "aiter_16x16.codes", "codes", Halves::gate_up, {16, false}},
    {"aiter_a16w4.scales", "cdna4.scales", "scales"},
    {"aiter_a16w4_gated.scales", "cdna4.scales", "scales", Halves::gate_up, {16, false}},
};

std::set<std::string> golden_names() {
  std::set<std::string> names;
  for (const char* file : golden_matrices) {
    const Golden golden(file);
    for (const Tensor& t : golden.tensors()) names.insert(t.name);
  }
  return names;
}

/// All golden matrices with the name of a layout, and the special ones.
std::vector<Vector> all_vectors() {
  std::vector<Vector> all(std::begin(special_vectors), std::end(special_vectors));
  const std::set<std::string> golden = golden_names();
  for (const Layout& layout : layouts) {
    const std::string_view name = name_of(layout);
    const bool special = std::any_of(all.begin(), all.end(), [&](const Vector& v) { return name == v.name; });
    if (golden.count(std::string(name)) && !special)
      all.push_back({name.data(), name.data(), name.data() + name.find('.') + 1});
  }
  return all;
}

/// Golden tensors without a layout. GGUF's blocks join codes and scales, but a layout has only one of them.
const std::set<std::string> without_layout = {"codes", "scales", "bias", "gguf.blocks"};

/// Layouts whose golden tensors are in layers only.
const std::set<std::string> golden_in_layers = {
    "trtllm.bias",    "humming.codes", "humming_wgmma.codes", "humming_fp8.codes",
    "humming.scales", "humming.bias",  "triton_rocm.scales",  "triton_hopper_w8_pairs.scales"};

Layout layout_of(const char* name) {
  const auto layout = find_layout(name);
  REQUIRE(layout);
  return *layout;
}

template <class T>
BasicMatrix<T> whole_matrix(T* data, Shape s) {
  BasicMatrix<T> m;
  m.view[0] = {data, s.b};
  m.real = m.padded = s;
  return m;
}

template <class T>
BasicMatrix<T> golden_matrix(T* data, Shape s, const Vector& v) {
  BasicMatrix<T> m = whole_matrix(data, s);
  m.add = v.add;
  if (v.halves == Halves::none) return m;
  m.views = 2;
  m.real.n = s.n / 2;
  m.order = v.order;
  m.view[v.halves == Halves::up_gate] = {data, s.b};
  m.view[v.halves == Halves::gate_up] = {data + s.n / 2 * s.b, s.b};
  return m;
}

std::vector<uint8_t> pack(const Layout& layout, const Matrix& m) {
  std::vector<uint8_t> packed(packed_bytes(layout, m.padded));
  const PackItem item{layout, m, packed.data()};
  open_cpu()->pack({&item, 1});
  return packed;
}

PadReport unpack(const Layout& layout, const std::vector<uint8_t>& packed, const MutableMatrix& m) {
  const UnpackItem item{layout, packed.data(), m};
  PadReport report;
  open_cpu()->unpack({&item, 1}, {&report, 1});
  return report;
}

/// The number of compared tensors in one file.
int check_vector(const Golden& golden, const Vector& v) {
  const Tensor* want = golden.find(v.name);
  if (!want) return 0;  // the layout does not support this shape
  const Tensor& in = *golden.find(v.input);
  const int64_t experts = in.shape[0];
  const Shape s{in.shape[1], in.bytes / experts / in.shape[1]};
  const Layout layout = layout_of(v.layout);
  const int64_t size = packed_bytes(layout, s);
  REQUIRE(fits(layout, s));
  REQUIRE(want->bytes == experts * size);
  for (int64_t e = 0; e < experts; ++e) {
    const auto canonical_at = golden.bytes(in).begin() + e * s.n * s.b;
    std::vector<uint8_t> canonical(canonical_at, canonical_at + s.n * s.b), back(canonical.size());
    for (uint8_t& b : canonical) b = std::min(b, uint8_t(255 - v.add));
    const auto packed = pack(layout, golden_matrix<const uint8_t>(canonical.data(), s, v));
    CHECK(std::memcmp(packed.data(), golden.bytes(*want).data() + e * size, size) == 0);
    CHECK(unpack(layout, packed, golden_matrix(back.data(), s, v)).wrong == 0);
    CHECK(back == canonical);
  }
  return 1;
}

/// Supported shapes for the layout's kind of matrix: a few tiles, odd multiples, GPT-OSS's 2880.
std::vector<Shape> shapes_for(const Layout& layout) {
  const std::string_view name = name_of(layout);
  std::vector<int64_t> widths = {16, 64, 192, 320, 1440};
  if (name.ends_with(".scales")) widths = {1, 4, 10, 12, 24, 90};
  if (name.ends_with(".bias")) widths = {2, 4};
  std::vector<Shape> shapes;
  for (int64_t n : {32, 64, 96, 192, 256, 640, 2880, 3072})
    for (int64_t b : widths)
      if (fits(layout, {n, b}) && (name != "trtllm.bias" || b == 4)) shapes.push_back({n, b});
  return shapes;
}

/// Gate and up of a w13 with padding on every side, in one buffer: alternating rows (GPT-OSS) or two halves.
struct Padded {
  Shape real;  // of each view
  std::vector<uint8_t> bytes;
  bool in_turn;
  MutableMatrix matrix;

  Padded(Shape padded, RowOrder order, std::vector<uint8_t> (*fill)(int64_t, uint32_t), int seed) : in_turn(seed % 2) {
    real = {padded.n / 2 - padded.n / 16 - 1, std::max<int64_t>(1, padded.b - padded.b / 4)};
    bytes = fill(2 * real.n * real.b, seed);
    matrix.views = 2;
    matrix.real = real;
    matrix.padded = padded;
    matrix.order = order;
    see(bytes);
  }
  void see(std::vector<uint8_t>& data) {
    matrix.view[0] = {data.data(), real.b * (in_turn ? 2 : 1)};
    matrix.view[1] = {data.data() + real.b * (in_turn ? 1 : real.n), matrix.view[0].stride};
  }
  Matrix read_only() const {
    Matrix m;
    for (int v : {0, 1}) m.view[v] = {matrix.view[v].data, matrix.view[v].stride};
    m.views = matrix.views, m.real = matrix.real, m.padded = matrix.padded;
    m.order = matrix.order;
    m.pad = matrix.pad;
    m.add = matrix.add;
    return m;
  }
  bool is_pad(int64_t n, int64_t b) const {
    return n >= matrix.padded.n || b >= real.b || matrix.source(n).row >= real.n;
  }
};

std::vector<uint8_t> zeros(int64_t n, uint32_t) { return std::vector<uint8_t>(n); }

/// The bits of the packed matrix that come from pads: packed from zeros with pads of 0xFF.
std::vector<uint8_t> pad_bits(const Layout& layout, const Padded& like) {
  Padded marked(like.matrix.padded, like.matrix.order, zeros, like.in_turn);
  marked.matrix.pad = {0xFF, 0xFF, 0xFF};
  return pack(layout, marked.read_only());
}

/// Checks that a flipped pad bit is reported with its place, and that the real bytes stay correct.
void check_flipped_pad(const Layout& layout, std::vector<uint8_t> packed, Padded& x, int seed) {
  const auto bits = pad_bits(layout, x);
  std::mt19937 random(seed);
  size_t at = random() % bits.size();
  while (bits[at] == 0) at = (at + 1) % bits.size();
  packed[at] ^= uint8_t(bits[at] & -bits[at]);
  const auto before = x.bytes;
  const PadReport report = unpack(layout, packed, x.matrix);
  CHECK(report.wrong == 1);
  CHECK(x.is_pad(report.n, report.b));
  CHECK(report.expected == uint8_t(x.matrix.pad_byte(report.n, report.b) + x.matrix.add));
  CHECK(__builtin_popcount(report.is ^ report.expected) == 1);
  CHECK(x.bytes == before);
}

void check_padded(const Layout& layout, Shape shape, RowOrder order, int seed) {
  Padded x(shape, order, random_bytes, seed);
  x.matrix.pad = {0x11, 0x7F, 0xA5, 0x3C};
  x.matrix.add = uint8_t(seed % 3 * 6);
  const auto packed = pack(layout, x.read_only());
  const auto bits = pad_bits(layout, x);
  int64_t pads = 0;
  for (uint8_t b : bits) pads += __builtin_popcount(b);
  REQUIRE(pads == 8 * (int64_t(packed.size()) - int64_t(x.bytes.size())));
  std::vector<uint8_t> back(x.bytes.size());
  Padded y = x;
  y.see(back);
  CHECK(unpack(layout, packed, y.matrix).wrong == 0);
  CHECK(back == x.bytes);
  check_flipped_pad(layout, packed, x, seed);
}

}  // namespace

TEST_CASE("layouts equal the golden matrices, forward and inverse") {
  for (const Vector& v : all_vectors()) {
    int compared = 0;
    for (const char* file : golden_matrices) {
      INFO(file << " " << v.name);
      compared += check_vector(Golden(file), v);
    }
    INFO(v.name);
    CHECK(compared > 0);
  }
}

TEST_CASE("every golden tensor has a layout, and every layout a golden tensor") {
  std::set<std::string> names = without_layout, used = golden_in_layers;
  for (const Vector& v : all_vectors()) {
    names.insert(v.name);
    used.insert(v.layout);
  }
  CHECK(golden_names() == names);
  for (const Layout& layout : layouts) {
    INFO(name_of(layout));
    CHECK(used.count(name_of(layout)) == 1);
  }
}

TEST_CASE("trtllm.bias equals the golden layer, zero-padded and cast to F32 before") {
  const Golden golden("layer_gpt_oss.safetensors");
  const Tensor& in = *golden.find("in.w2_bias");
  const Tensor& want = *golden.find("flashinfer_trtllm_i128.gemm2_bias");
  const int64_t experts = in.shape[0], n = in.shape[1], padded = want.shape[1];
  for (int64_t e = 0; e < experts; ++e) {
    std::vector<uint8_t> f32(padded * 4);
    for (int64_t i = 0; i < n; ++i) std::memcpy(&f32[i * 4 + 2], golden.bytes(in).data() + (e * n + i) * 2, 2);
    const auto packed = pack(TrtllmBias{}, whole_matrix<const uint8_t>(f32.data(), {padded, 4}));
    CHECK(std::memcmp(packed.data(), golden.bytes(want).data() + e * padded * 4, padded * 4) == 0);
  }
}

TEST_CASE("a layout is found by its name") {
  for (const Layout& layout : layouts) {
    const auto found = find_layout(name_of(layout));
    REQUIRE(found);
    CHECK(found->index() == layout.index());
  }
  CHECK(!find_layout("marlin"));
  CHECK(!find_layout(""));
}

TEST_CASE("two padded views survive every layout and row order, and a flipped pad bit is found") {
  for (const Layout& layout : layouts)
    for (const Shape s : shapes_for(layout))
      for (const int64_t block : {0, 1, 8, 16, 64}) {
        if (s.n > 640 || (block && s.n % (2 * block))) continue;
        INFO(name_of(layout) << " " << s.n << "x" << s.b << " block " << block);
        check_padded(layout, s, {block, block == 1}, int(s.n / 32 + block));
      }
}
