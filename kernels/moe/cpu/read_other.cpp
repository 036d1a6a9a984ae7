// AMD's AITER and triton_kernels, vLLM's CPU kernel, and kernels that read the checkpoint's own layout.
#include "kernels/moe/cpu/readers.h"

namespace mxfp4::readers {
namespace {

/// A lane's scales for two steps of 128 columns and two 16-row tiles are one word: 256 bytes for 32 rows x 256 columns,
/// [q][l][step][tile]. n0: a multiple of 32.
float cdna4_scale(const PackedMatrix& m, int64_t n0, int tile, int l, int64_t k) {
  const uint8_t* scales = m.scales + (n0 / 32 * (m.k / 256) + k / 256) * 256;
  return ue8m0(scales[k % 128 / 32 * 64 + l * 4 + k % 256 / 128 * 2 + tile]);
}

/// mfma_scale 16x16x128: 16 lanes l hold a row each, four lane quarters q 32 columns each: 16 bytes a lane, so memory
/// is tiles of 16 rows x 16 bytes.
void read_aiter(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t width = k1 - k0;
  for (int64_t k = k0; k < k1; k += 32)
    for (int tile = 0; tile < 2; ++tile)
      for (int l = 0; l < 16; ++l) {
        const uint8_t* codes = m.codes + ((n0 / 16 + tile) * (m.k / 32) + k / 32) * 256 + l * 16;
        const float scale = cdna4_scale(m, n0, tile, l, k);
        float* to = out + (16 * tile + l) * width + k - k0;
        for (int b = 0; b < 16; ++b) {
          to[2 * b] = code(codes[b]) * scale;
          to[2 * b + 1] = code(codes[b] >> 4) * scale;
        }
      }
}

/// triton_kernels on CDNA4: the rows of codes are loaded as they are, the scales as AITER's.
void read_triton_cdna4(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  for (int row = 0; row < 32; ++row)
    for (int64_t k = k0; k < k1; ++k)
      *out++ = code(m.codes[((n0 + row) * m.k + k) / 2] >> k % 2 * 4) * cdna4_scale(m, n0, row / 16, row % 16, k);
}

/// triton_kernels on ROCm with other scales: the scales of one group are contiguous for all rows.
void read_triton_rocm(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  for (int64_t k = k0; k < k1; ++k)
    out[k - k0] = code(m.codes[(n0 * m.k + k) / 2] >> k % 2 * 4) * exponent(m.scales[k / 32 * m.n + n0]);
}

/// AVX-512 loads 32 bytes, one pair of columns of 32 rows, and splits the nibbles into two vectors of 32. Byte c holds
/// row c / 2 in its low nibble and row 16 + c / 2 in its high nibble. An odd c holds the odd column.
void read_vllm_cpu(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t width = k1 - k0;
  for (int64_t k = k0; k < k1; k += 2) {
    const uint8_t* codes = m.codes + n0 * (m.k / 2) + k / 2 * 32;
    const uint8_t* scales = m.scales + n0 * (m.k / 32) + k / 32 * 32;
    for (int c = 0; c < 32; ++c) {
      float* to = out + c / 2 * width + k - k0 + c % 2;
      to[0] = code(codes[c]) * ue8m0(scales[c / 2]);
      to[16 * width] = code(codes[c] >> 4) * ue8m0(scales[16 + c / 2]);
    }
  }
}

/// triton_kernels below Hopper and emulations: a row at its place, its scales at theirs.
void read_canonical(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  for (int64_t k = k0; k < k1; ++k) {
    const int64_t at = n0 * m.k + k;
    out[k - k0] = code(m.codes[at / 2] >> k % 2 * 4) * exponent(m.scales[at / 32]);
  }
}

/// AITER's Triton kernel, which fuses the activation and therefore reads gate and up rows in pairs for every model.
constexpr KernelFormat aiter_triton(const char* name, int64_t rows, int64_t columns, ReadBlock* read) {
  return {.name = name, .rows = rows, .columns = columns, .read = read, .w13 = W13Order{1, false}};
}

constexpr KernelFormat other_rows[] = {
    {.name = "aiter-a16w4",
     .rows = 32,
     .columns = 256,
     .read = read_aiter,
     .bias_in_halves = true,
     .w13 = W13Order{16, false}},
    {.name = "aiter-w4a4", .rows = 32, .columns = 256, .read = read_aiter, .w13 = gate_up},
    {.name = "aiter-w4a4-loaded", .rows = 32, .columns = 256, .read = read_aiter},
    {.name = "triton-cdna4", .rows = 32, .columns = 256, .read = read_triton_cdna4},
    {.name = "triton-rocm", .rows = 1, .columns = 32, .read = read_triton_rocm},
    aiter_triton("aiter-triton-cdna4", 32, 256, read_triton_cdna4),
    aiter_triton("aiter-triton", 1, 32, read_triton_rocm),
    aiter_triton("aiter-triton-strided", 1, 32, read_canonical),
    {.name = "vllm-cpu", .rows = 32, .columns = 32, .read = read_vllm_cpu},
    {.name = "canonical", .rows = 1, .columns = 32, .read = read_canonical},
    {.name = "canonical-bf16", .rows = 1, .columns = 32, .read = read_canonical, .bias = BiasForm::bf16},
};

}  // namespace

constinit const std::span<const KernelFormat> other_formats = other_rows;

}  // namespace mxfp4::readers
