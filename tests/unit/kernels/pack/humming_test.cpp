#include "kernels/pack/humming.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "kernels/pack/device.h"
#include "tests/support/golden.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

std::vector<uint8_t> expert(const Golden& golden, const char* name, int64_t e) {
  const Tensor& t = *golden.find(name);
  const auto all = golden.bytes(t);
  const int64_t size = t.bytes / t.shape[0];
  return {all.begin() + e * size, all.begin() + (e + 1) * size};
}

struct Form {
  const char* tag;
  Layout codes, scales;
  bool up_first;
};
const Form forms[] = {{"flashinfer_humming.", FlashinferSm90Fp4Fp8Codes{}, FlashinferSm90V2Scales{}, true},
                      {"vllm.humming_w4a8.", HummingFp8Codes{}, HummingScales{}, false}};

/// Packs w13 of a DeepSeek-V4 layer, with views of gate and up, or w2, with one view.
std::vector<uint8_t> pack(const Layout& layout, const std::vector<uint8_t>& rows, Shape s, bool gated, bool up_first) {
  Matrix m;
  m.view[0] = {rows.data(), s.b};
  m.real = m.padded = s;
  if (gated) {
    m.view[1] = {rows.data() + s.n / 2 * s.b, s.b};
    m.views = 2;
    m.real.n = s.n / 2;
    m.order = {0, up_first};
  }
  std::vector<uint8_t> packed(packed_bytes(layout, s));
  const PackItem item{layout, m, packed.data()};
  open_cpu()->pack({&item, 1});
  return packed;
}

void check_layer(const Form& form, const std::string& matrix, bool gated) {
  const Golden golden("layer_deepseek.safetensors");
  const std::string in = "in." + matrix, want = form.tag + matrix;
  const Tensor& shape = *golden.find(in);
  for (int64_t e = 0; e < shape.shape[0]; ++e) {
    auto codes = expert(golden, in.c_str(), e), scales = expert(golden, (in + "_scale").c_str(), e);
    const RewriteLoss h = humming_rewrite(codes, scales);
    const Shape s{shape.shape[1], shape.shape[2]};
    CHECK(pack(form.codes, codes, s, gated, form.up_first) == expert(golden, want.c_str(), e));
    CHECK(pack(form.scales, scales, {s.n, s.b / 16}, gated, form.up_first) ==
          expert(golden, (want + "_scale").c_str(), e));
    float residual;
    std::memcpy(&residual, expert(golden, (want + "_residual").c_str(), e).data(), 4);
    CHECK(h.residual == residual);
    CHECK(h.groups_clamped > 0);
    CHECK(h.codes_rounded < h.codes_changed);
  }
}

double value(int code) {
  constexpr double magnitude[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

}  // namespace

TEST_CASE("Humming's rewritten layer equals the golden one") {
  for (const Form& form : forms) {
    INFO(form.tag);
    check_layer(form, "w13", true);
    check_layer(form, "w2", false);
  }
}

TEST_CASE("Humming keeps codes and values where all scales lie within eleven doublings") {
  std::vector<uint8_t> scales, codes;
  for (int s = 100; s <= 111; ++s) scales.push_back(uint8_t(s));
  for (size_t i = 0; i < scales.size() * 16; ++i) codes.push_back(uint8_t(i % 8 * 16 + (i + 1) % 8));  // no code 8
  const auto before = codes;
  const RewriteLoss h = humming_rewrite(codes, scales);
  CHECK(codes == before);
  CHECK(h.residual == std::ldexp(1.0f, 100 - 127) / 2);
  CHECK((h.groups == 12 && h.groups_clamped == 0 && h.codes_changed == 0 && h.minus_zeros == 0));
  for (int i = 0; i < 12; ++i) CHECK(scales[i] == i + 1);
}

TEST_CASE("Humming divides all 16 codes by every power of two, to the nearest") {
  for (int low = 0; low < 244; ++low) {  // one group with the base, one `delta` below it
    const int delta = 244 - low;
    std::vector<uint8_t> scales = {255, uint8_t(low)}, codes(32, 0);
    for (int c = 0; c < 16; ++c) codes[16 + c] = uint8_t(c | (15 - c) << 4);
    const RewriteLoss h = humming_rewrite(codes, scales);
    REQUIRE((scales[0] == 12 && scales[1] == 1));
    int64_t changed = 0, rounded = 0;
    for (int c = 0; c < 16; ++c) {
      const int got = codes[16 + c] & 15;
      REQUIRE(codes[16 + 15 - c] >> 4 == got);
      if (c == 8) {
        CHECK(got == 0);
        continue;
      }
      const double want = std::ldexp(value(c), -delta), error = std::abs(value(got) - want);
      changed += got != c;
      rounded += value(got) != want;
      CHECK((got & 8) == (c & 8));
      for (int other = 0; other < 16; ++other) CHECK(std::abs(value(other) - want) >= error);
      for (int other = 0; other < 16; ++other)  // a tie rounds away from zero
        if (std::abs(value(other) - want) == error) CHECK(std::abs(value(other)) <= std::abs(value(got)));
    }
    CHECK(h.groups_clamped == 1);
    CHECK(h.codes_changed == 2 * changed);
    CHECK(h.codes_rounded == 2 * rounded);
    CHECK(h.minus_zeros == 2);
  }
}

namespace {

/// A tensor of a DeepSeek-V4 checkpoint. Experts' tensors are cut to the share of one of two ranks.
std::string half_of(Tensor& t, const std::string& bytes, int rank) {
  if (t.name.find(".ffn.experts.") == t.name.npos) return bytes;
  if (t.name.find(".w2.") == t.name.npos) {
    t.shape[0] /= 2;
    return bytes.substr(size_t(rank) * bytes.size() / 2, bytes.size() / 2);
  }
  const size_t row = bytes.size() / size_t(t.shape[0]);
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += row) out += bytes.substr(at + size_t(rank) * row / 2, row / 2);
  t.shape[1] /= 2;
  return out;
}

/// Writes these halves as a separate checkpoint.
void write_half(const std::string& from, const std::string& to, int rank) {
  Problems problems;
  std::vector<Tensor> tensors;
  std::string data;
  for (const auto& [name, text] : contents_of(from)) {
    if (!name.ends_with(".safetensors")) continue;
    for (Tensor t : read_header(from + "/" + name, name, problems).tensors) {
      const std::string half = half_of(t, text.substr(size_t(t.offset), size_t(t.bytes)), rank);
      t.offset = int64_t(data.size());
      t.bytes = int64_t(half.size());
      tensors.push_back(t);
      data += half;
    }
  }
  Json config = parse_json(read_text(from + "/config.json", 1 << 20), "config");
  config["moe_intermediate_size"] = config["moe_intermediate_size"].get<int64_t>() / 2;
  std::filesystem::create_directories(to);
  write_text(to + "/model.safetensors", write_header(tensors, {{"format", "pt"}}, 8) + data);
  write_text(to + "/config.json", config.dump());
}

}  // namespace

TEST_CASE("a rank of a Humming layer is what its columns alone would give") {
  const TempDir dir;
  write_synth("deepseek-v4-flash", dir / "in", {.experts = 2, .hidden = 256, .intermediate = 256});
  ConvertOptions o = conversion(dir / "in", dir / "out", "vllm", "flashinfer-humming");
  o.tp_size = 2;
  convert(o);
  CHECK(is_right(dir / "out", dir / "in"));
  CHECK_THROWS_WITH(run_unpack(dir / "out", dir / "again"), Catch::Contains("flashinfer-humming is lossy"));
  for (const int rank : {0, 1}) {
    const std::string half = dir / fmt::format("half{}", rank);
    write_half(dir / "in", half, rank);
    convert(conversion(half, half + "-out", "vllm", "flashinfer-humming"));
    const auto packed = tensors_of_file(dir / fmt::format("out/packed/tp2-rank{}-00001.safetensors", rank));
    CHECK(packed.size() >= 6);
    CHECK(packed == tensors_of_file(half + "-out/packed/packed-00001.safetensors"));
  }
}
