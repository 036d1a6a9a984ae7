// Blackwell: TMA copies codes from plain rows. The tensor core reads its scales from tensor memory, in blocks of 512
// bytes for 128 rows x 4 groups. Lane j (16 bytes) serves rows j, 32 + j, 64 + j and 96 + j, 4 bytes each.
#include "kernels/moe/cpu/readers.h"

namespace mxfp4::readers {
namespace {

float scale_in_block(const uint8_t* block, int64_t n, int64_t group) {
  return ue8m0(block[n % 32 * 16 + n % 128 / 32 * 4 + group % 4]);
}

/// Rows of plain codes: columns [k0, k1) of one row, scaled group by group.
template <class Scale>
void read_plain_row(const uint8_t* codes, int64_t k0, int64_t k1, float* out, Scale scale_of) {
  for (int64_t k = k0; k < k1; k += 32) {
    const float scale = scale_of(k / 32);
    for (int64_t b = 0; b < 16; ++b) {
      const uint8_t byte = codes[k / 2 + b];
      out[k - k0 + 2 * b] = code(byte) * scale;
      out[k - k0 + 2 * b + 1] = code(byte >> 4) * scale;
    }
  }
}

/// triton_kernels: rows padded to 128 bytes; groups padded to 8, rows of scales to 128.
void read_triton_blackwell(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t line = round_up(m.k, 256) / 2, blocks = round_up(m.k / 32, 8) / 4;
  for (int64_t n = n0; n < n0 + 32; ++n)
    read_plain_row(m.codes + n * line, k0, k1, out + (n - n0) * (k1 - k0), [&](int64_t group) {
      return scale_in_block(m.scales + (n / 128 * blocks + group / 4) * 512, n, group);
    });
}

/// CUTLASS and CuTe-DSL: plain rows; blocks of scales along k, then along n.
void read_sm100(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  for (int64_t n = n0; n < n0 + 128; ++n)
    read_plain_row(m.codes + n * (m.k / 2), k0, k1, out + (n - n0) * (k1 - k0), [&](int64_t group) {
      return scale_in_block(m.scales + (n / 128 * (m.k / 128) + group / 4) * 512, n, group);
    });
}

/// trtllm-gen: each lane of the epilogue owns accumulator rows that it can write as 16 bytes at once. Therefore row j
/// of every 32 rows in memory is the matrix's row 4(j % 8) + j / 8. Codes and scales are shuffled alike.
void read_trtllm(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  for (int64_t n = n0; n < n0 + 128; ++n) {
    const int64_t j = n % 32, row = n - n0 - j + 4 * (j % 8) + j / 8;
    read_plain_row(m.codes + n * (m.k / 2), k0, k1, out + row * (k1 - k0), [&](int64_t group) {
      return scale_in_block(m.scales + (n / 128 * (m.k / 128) + group / 4) * 512, n, group);
    });
  }
}

/// DeepGEMM: TMA reads the scales of one 128-column step as a run of words, one word of 4 groups for each row.
void read_deepgemm(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  for (int64_t n = n0; n < n0 + 32; ++n)
    read_plain_row(m.codes + n * (m.k / 2), k0, k1, out + (n - n0) * (k1 - k0),
                   [&](int64_t group) { return ue8m0(m.scales[(group / 4 * round_up(m.n, 4) + n) * 4 + group % 4]); });
}

/// DeepGEMM's fused kernel copies them to tensor memory without a transposition: whole blocks, n within k.
void read_deepgemm_mega(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  for (int64_t n = n0; n < n0 + 128; ++n)
    read_plain_row(m.codes + n * (m.k / 2), k0, k1, out + (n - n0) * (k1 - k0), [&](int64_t group) {
      return scale_in_block(m.scales + (group / 4 * (m.n / 128) + n / 128) * 512, n, group);
    });
}

constexpr KernelFormat cutlass_mxfp4() {
  KernelFormat f = flashinfer("cutlass-mxfp4", 128, read_sm100);
  f.w13 = gate_up;
  return f;
}

constexpr KernelFormat cutedsl() {
  KernelFormat f = flashinfer("flashinfer-cutedsl", 128, read_sm100);
  f.w13 = W13Order{64, true};
  return f;
}

constexpr KernelFormat blackwell_rows[] = {
    flashinfer("flashinfer-cutlass-sm100", 128, read_sm100),
    cutlass_mxfp4(),
    cutedsl(),
    {.name = "flashinfer-trtllm",
     .rows = 128,
     .columns = 128,
     .read = read_trtllm,
     .bias = BiasForm::f32_shuffled,
     .w13 = W13Order{1, true}},
    {.name = "triton-blackwell",
     .rows = 32,
     .columns = 32,
     .read = read_triton_blackwell,
     .codes = {1, 256},
     .scales = {128, 8}},
    {.name = "deepgemm", .rows = 32, .columns = 32, .read = read_deepgemm, .scales = {4, 4}, .w13 = gate_up},
    {.name = "deepgemm-mega", .rows = 128, .columns = 128, .read = read_deepgemm_mega, .w13 = W13Order{8, false}},
};

}  // namespace

constinit const std::span<const KernelFormat> blackwell_formats = blackwell_rows;

}  // namespace mxfp4::readers
