// Runs the index arithmetic of the GPU kernels on the host: a warp's fetches and decodes, lane by lane, compared with
// the canonical codes and scales of the golden matrices.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/moe/cuda/moe_storage.h"
#include "tests/support/golden.h"

using namespace mxfp4;

namespace {

float code_value(int code) {
  const float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

/// Converts bf16 bits of code * 2^-126 to the code's value.
float operand_value(uint32_t half) { return std::ldexp(std::bit_cast<float>((half & 0xffff) << 16), 126); }

struct Canonical {
  std::span<const uint8_t> codes, scales;
  int64_t n, k;
  float code(int64_t e, int64_t row, int64_t column) const {
    const uint8_t byte = codes[size_t((e * n + row) * (k / 2) + column / 2)];
    return code_value(column % 2 ? byte >> 4 : byte & 15);
  }
  int scale(int64_t e, int64_t row, int64_t group) const { return scales[size_t((e * n + row) * (k / 32) + group)]; }
};

/// A span of 64 rows in the form of the kernels' shared memory.
template <OperandReader Reader>
struct Span {
  alignas(16) uint8_t words[Reader::span * unit_bytes], scales[256];
  Span(const OperandMatrix& m, int64_t expert, int row, int index) {
    for (int chunk = 0; chunk < 4 * Reader::span; chunk++)
      for (int lane = 0; lane < 32; lane++)
        std::memcpy(words + Reader::target(chunk, lane),
                    m.words + expert * m.word_stride + Reader::source(m, row, lane) +
                        Reader::chunk_step(m, row, chunk) + int64_t(index) * m.k_step,
                    16);
    for (int p = 0; p < Reader::scale_pieces; p++)
      std::memcpy(scales + p * 16,
                  m.scales + expert * m.scale_stride + Reader::scale_source(m, row, p) + int64_t(index) * m.scale_step,
                  16);
  }
};

/// The number of lanes that disagree in the worst block.
template <OperandReader Reader>
int64_t wrong_words(const OperandMatrix& m, const Canonical& c, int64_t experts) {
  int64_t wrong = 0;
  for (int64_t e = 0; e < experts; e++)
    for (int row = 0; row < m.n; row += unit_rows)
      for (int block = 0; block < m.k / unit_k; block++) {
        const Span<Reader> span(m, e, row, block / Reader::span);
        const uint8_t* unit = span.words + block % Reader::span * unit_bytes;
        for (int tile = 0; tile < 4 && row + tile * 16 < m.n; tile++)
          for (int lane = 0; lane < 32; lane++) {
            uint32_t one[1][4], four[4][4], two[2][4];
            Reader::template words<1>(unit, tile, lane, one);
            Reader::template words<4>(unit, 0, lane, four);
            Reader::template words<2>(unit, tile / 2 * 2, lane, two);
            const uint32_t scale = Reader::scale(span.scales, tile, lane / 4, block);
            for (int s = 0; s < 4; s++) {
              wrong += one[0][s] != four[tile][s] || one[0][s] != two[tile % 2][s];
              uint32_t a[4];
              Reader::decode(one[0][s], a);
              for (int i = 0; i < 4; i++) {
                const int64_t r = row + tile * 16 + lane / 4 + i % 2 * 8;
                const int64_t k = block * 64 + s * 16 + lane % 4 * 2 + i / 2 * 8;
                if (k >= c.k) continue;
                wrong += operand_value(a[i]) != c.code(e, r, k) || operand_value(a[i] >> 16) != c.code(e, r, k + 1);
                const uint32_t byte = uint32_t(c.scale(e, r, k / 32));
                if (s % 2 == 0 && i < 2) wrong += operand_scale(scale, s / 2, i, 0) != byte * 0x00800080u;
              }
            }
          }
      }
  return wrong;
}

template <OperandReader Reader>
void check_format(const char* format_name, const std::string& codes, const std::string& scales) {
  const KernelFormat& format = kernel_format(format_name);
  int found = 0;
  for (const char* name : golden_matrices) {
    const Golden golden(name);
    const Tensor *words = golden.find(codes), *bytes = golden.find(scales), *in = golden.find("codes");
    if (!words || !bytes || (format.cuda == CudaReader::marlin && in->shape[2] * 2 % 64)) continue;
    const Canonical c{golden.bytes(*in), golden.bytes(*golden.find("scales")), in->shape[1], in->shape[2] * 2};
    StoredMatrix m = stored_matrix(format, c.n, c.k);
    m.view.words = golden.bytes(*words).data();
    m.view.scales = golden.bytes(*bytes).data();
    CAPTURE(name, codes);
    REQUIRE(m.words * in->shape[0] == words->bytes);
    REQUIRE(m.scales * in->shape[0] == bytes->bytes);
    CHECK(wrong_words<Reader>(m.view, c, in->shape[0]) == 0);
    found++;
  }
  CHECK(found >= 2);
}

/// Checks formats whose golden tensors are in layers only, with w2. The engine pads its intermediate columns to
/// `multiple`.
template <OperandReader Reader>
void check_layer(const char* file, const char* format_name, const std::string& tag, int64_t multiple) {
  const Golden golden(file);
  const Tensor &in = *golden.find("in.w2"), &words = *golden.find(tag + ".w2"),
               &bytes = *golden.find(tag + ".w2_scale");
  const Canonical c{golden.bytes(in), golden.bytes(*golden.find("in.w2_scale")), in.shape[1], in.shape[2] * 2};
  StoredMatrix m = stored_matrix(kernel_format(format_name), c.n, round_up(c.k, multiple));
  m.view.words = golden.bytes(words).data();
  m.view.scales = golden.bytes(bytes).data();
  CAPTURE(file, format_name);
  REQUIRE(m.words * in.shape[0] == words.bytes);
  REQUIRE(m.scales * in.shape[0] == bytes.bytes);
  CHECK(wrong_words<Reader>(m.view, c, in.shape[0]) == 0);
}

}  // namespace

TEST_CASE("GPU words: Humming's, of matrices that it pads", "[moe]") {
  for (const char* file : {"layer_deepseek.safetensors", "layer_gpt_oss.safetensors", "layer_vllm_humming.safetensors"})
    check_layer<HummingReader>(file, "humming", "vllm.humming", 64);
  check_layer<HummingWgmmaReader>("layer_deepseek.safetensors", "humming-wgmma", "sglang.humming", 1);
}

TEST_CASE("GPU words: every lane finds its codes and scales", "[moe]") {
  check_format<MarlinReader>("marlin", "marlin.codes", "marlin.scales");
  check_format<FlashinferV1Reader>("flashinfer-sm90-v1", "flashinfer_sm90_v1.codes", "flashinfer_sm90_v1.scales");
  check_format<FlashinferV2Reader>("flashinfer-sm90-v2", "flashinfer_sm90_v2.codes", "flashinfer_sm90_v2.scales");
  check_format<TritonReader>("triton-hopper-a", "triton_hopper_A.codes", "triton_hopper_w8.scales");
  check_format<TritonReader>("triton-hopper-b", "triton_hopper_B.codes", "triton_hopper_w8.scales");
  check_format<TritonReader>("triton-hopper-c", "triton_hopper_C.codes", "triton_hopper_w8.scales");
}

TEST_CASE("GPU words: the scale exponent keeps every byte's product exact or infinite", "[moe]") {
  for (int largest = 0; largest < 256; largest++) {
    const int exponent = operand_exponent(largest);
    const float scale = std::bit_cast<float>(operand_scale(uint32_t(largest), 0, 0, exponent) << 16);
    if (largest == 255)
      CHECK(std::isinf(scale));
    else
      CHECK(scale == std::ldexp(1.0f, largest + exponent - 127));
  }
}

TEST_CASE("GPU words: Marlin's bias order", "[moe]") {
  int found = 0;
  for (const char* name : golden_matrices) {
    const Golden golden(name);
    const Tensor *packed = golden.find("marlin.bias"), *in = golden.find("bias");
    if (!packed || !in) continue;
    const auto from = golden.bytes(*in), to = golden.bytes(*packed);
    int64_t wrong = 0;
    for (int i = 0; i < in->shape[1]; i++)
      wrong += std::memcmp(&from[size_t(i) * 2], &to[size_t(MarlinReader::bias_index(i)) * 2], 2) != 0;
    CHECK(wrong == 0);
    found++;
  }
  CHECK(found >= 2);
}
