// Hopper: weights are operand A of wgmma, from registers. Lane 4g + t of a warp holds rows g and g + 8 of its 16-row
// slab. For bf16 (k16) it holds columns 2t, 2t+1, 2t+8 and 2t+9; for FP8 (k32) columns 4t..4t+3 and 4t+16..4t+19.
#include "kernels/moe/cpu/readers.h"

namespace mxfp4::readers {
namespace {

/// A bf16 that holds a code times 2^-126 (sign, exponent's low bits and the top of the mantissa) back to the code.
uint32_t code_of_bf16(uint32_t bits) { return (bits >> 12 & 8) | (bits >> 6 & 7); }

/// One k16 step of a lane: four bf16 pairs in one word. Shifts of 0, 3 and 6 bring the first three under the mask
/// 0x81C0; the fourth is spread over the remaining bits. Low half: the even columns; high half: the odd ones.
struct Step {
  uint32_t code[4][2];  // {row g, k}, {row g + 8, k}, {row g, k + 8}, {row g + 8, k + 8}; even and odd column
};
Step unpack_step(uint32_t w) {
  Step step;
  for (int odd = 0; odd < 2; ++odd) {
    const uint32_t half = w >> 16 * odd & 0xFFFF;
    for (int i = 0; i < 3; ++i) step.code[i][odd] = code_of_bf16(half << 3 * i & 0x81C0);
    step.code[3][odd] = code_of_bf16((half << 1 & 0x8000) | (half >> 3 & 0x0180) | (half >> 7 & 0x0040));
  }
  return step;
}

/// Writes a step at column k of rows g and g + 8 with their scales.
void put_step(const Step& step, float scale_g, float scale_g8, float* row_g, float* row_g8, int64_t k) {
  for (int odd = 0; odd < 2; ++odd) {
    row_g[k + odd] = code(step.code[0][odd]) * scale_g;
    row_g8[k + odd] = code(step.code[1][odd]) * scale_g8;
    row_g[k + 8 + odd] = code(step.code[2][odd]) * scale_g;
    row_g8[k + 8 + odd] = code(step.code[3][odd]) * scale_g8;
  }
}

/// A scale of generation 2: 256 bytes for 64 rows x 128 columns, in 16 chunks of 16 bytes. Chunk f serves row f of each
/// of the four warps' slabs: 4 bytes per warp, one per group.
float folded_scale(const PackedMatrix& m, int64_t n, int64_t group) {
  const uint8_t* atom = m.scales + (n / 64 * (m.k / 128) + group / 4) * 256;
  return exponent(atom[n % 16 * 16 + n % 64 / 16 * 4 + group % 4]);
}

/// The scale of generation 1: for every 128 columns, 4 bytes a row.
float row_scale(const PackedMatrix& m, int64_t n, int64_t group) {
  return exponent(m.scales[group / 4 * 4 * m.n + 4 * n + group % 4]);
}

/// Calls read(memory, row, k) for the 16 bytes of every 32 columns of 64 rows: columns k .. of `row` and row + 8.
template <class Read>
void for_each_chunk(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, Read read) {
  for (int64_t slab = n0; slab < n0 + 64; slab += 16)
    for (int upper = 0; upper < 2; ++upper)
      for (int64_t g = 0; g < 8; ++g) {
        const uint8_t* memory = m.codes + (slab + 8 * upper + g) * (m.k / 2);
        for (int64_t k = k0 + 16 * upper; k < k1; k += 32) read(memory + k / 32 * 16, slab + g, k);
      }
}

/// A slab is 16 rows of k/2 bytes. A row holds 32 bytes for every 64 columns: word 4u + t for half u of 32 columns.
/// Words belong to lane (row % 8, t): in the lower rows of the slab for k16 step 2u, in the upper rows for step 2u + 1.
void read_sm90_v2(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t width = k1 - k0;
  for_each_chunk(m, n0, k0, k1, [&](const uint8_t* memory, int64_t n, int64_t k) {
    const float low = folded_scale(m, n, k / 32), high = folded_scale(m, n + 8, k / 32);
    float* row = out + (n - n0) * width;
    for (int t = 0; t < 4; ++t)
      put_step(unpack_step(word(memory + 4 * t)), low, high, row, row + 8 * width, k - k0 + 2 * t);
  });
}

/// The same words as bytes: columns 2t, 2t+1, 2t+8, 2t+9, each with row g in the low nibble and row g + 8 in the high
/// nibble.
void read_sm90_v1(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t width = k1 - k0;
  for_each_chunk(m, n0, k0, k1, [&](const uint8_t* memory, int64_t n, int64_t k) {
    const float low = row_scale(m, n, k / 32), high = row_scale(m, n + 8, k / 32);
    for (int i = 0; i < 16; ++i) {
      float* value = out + (n - n0) * width + k - k0 + i / 4 * 2 + i % 4 / 2 * 8 + i % 2;
      value[0] = code(memory[i]) * low;
      value[8 * width] = code(memory[i] >> 4) * high;
    }
  });
}

/// FP8 operands: word t of 32 columns' 16 bytes is one k16 half of lane (g, t)'s k32 step, four columns of row g, then
/// of row g + 8. The three low bits of a code stay in their nibble. The kernel's shifts move the signs to the sign bits
/// of E4M3. The signs of row g are in bits 7, 15, 23, 31, those of row g + 8 in bits 3, 11, 19, 27. Scales are offsets:
/// 2^offset * residual.
void read_sm90_fp4fp8(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  constexpr int sign[8] = {7, 15, 23, 31, 3, 11, 19, 27};
  for_each_chunk(m, n0, k0, k1, [&](const uint8_t* memory, int64_t n, int64_t k) {
    for (int t = 0; t < 4; ++t) {
      const uint32_t w = word(memory + 4 * t);
      for (int i = 0; i < 8; ++i) {
        const int64_t row = n + i / 4 * 8;
        const float scale = folded_scale(m, row, k / 32) * 0x1p127f * m.residual;
        const uint32_t nibble = (w >> 4 * i & 7) | (w >> sign[i] & 1) << 3;
        out[(row - n0) * (k1 - k0) + k - k0 + 4 * t + i % 4] = code(nibble) * scale;
      }
    }
  });
}

/// triton_kernels' scales for kernels of 8 warps: the 16-row slabs of a warp are 8 slabs apart. A row of memory has 64
/// bytes for every two groups, ordered by slab (2), lane g (8), group, then row g or g + 8. Groups are padded to
/// `multiple`.
template <int multiple>
float triton_scale(const PackedMatrix& m, int64_t n, int64_t group) {
  const int64_t slab = n / 16, line = slab / 16 * 8 + slab % 8;
  return exponent(m.scales[line * round_up(m.k / 32, multiple) * 32 + group / 2 * 64 + slab / 8 % 2 * 32 + n % 8 * 4 +
                           group % 2 * 2 + n / 8 % 2]);
}

/// triton_kernels' codes, mma version 3: memory has one row for every four rows of the matrix. Memory row 4T + j holds
/// rows 16T + 2j, 16T + 2j + 1 and those 8 further on. Every 64 columns take 128 bytes, first for row 2j, then for 2j +
/// 1: 4 lanes t of 16 bytes, one word per k16 step. Columns are padded to `pad`; rows too, which moves no byte.
template <int64_t pad, int groups = 4>
void read_triton_hopper(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t width = k1 - k0, line = round_up(m.k, pad) * 2;
  for (int64_t g = 0; g < 8; ++g) {
    const uint8_t* memory = m.codes + (n0 / 4 + g / 2) * line + g % 2 * 64;
    float* row = out + g * width;
    for (int64_t k = k0; k < k1; k += 16) {
      const float low = triton_scale<groups>(m, n0 + g, k / 32), high = triton_scale<groups>(m, n0 + g + 8, k / 32);
      for (int t = 0; t < 4; ++t) {
        const Step step = unpack_step(word(memory + k / 64 * 128 + t * 16 + k % 64 / 16 * 4));
        put_step(step, low, high, row, row + 8 * width, k - k0 + 2 * t);
      }
    }
  }
}

/// SGLang keeps a residual with the 2^6 that E4M3's exponent lacks.
constexpr KernelFormat flashinfer_humming_64() {
  KernelFormat f = rewritten(flashinfer("flashinfer-humming-64", 64, read_sm90_fp4fp8));
  f.residual = 64;
  return f;
}

/// Three generations. groups: the multiple to which scales are padded; the CUDA kernel reads four at once.
constexpr StoredIn a{16, 64}, b{64, 128}, c{256, 128};
constexpr KernelFormat triton_hopper(const char* name, ReadBlock* read, StoredIn codes, int64_t groups = 4) {
  return {.name = name,
          .rows = 16,
          .columns = 64,
          .read = read,
          .codes = codes,
          .scales = {256, groups},
          .cuda = groups == 4 ? CudaReader::triton_hopper : CudaReader::none};
}

constexpr KernelFormat hopper_rows[] = {
    flashinfer("flashinfer-sm90-v1", 64, read_sm90_v1, CudaReader::flashinfer_v1),
    flashinfer("flashinfer-sm90-v2", 64, read_sm90_v2, CudaReader::flashinfer_v2),
    rewritten(flashinfer("flashinfer-humming", 64, read_sm90_fp4fp8)),
    flashinfer_humming_64(),
    triton_hopper("triton-hopper-a", read_triton_hopper<64>, a),
    triton_hopper("triton-hopper-b", read_triton_hopper<128>, b),
    triton_hopper("triton-hopper-b-pairs", read_triton_hopper<128, 2>, b, 2),
    triton_hopper("triton-hopper-c", read_triton_hopper<128>, c),
};

}  // namespace

constinit const std::span<const KernelFormat> hopper_formats = hopper_rows;

}  // namespace mxfp4::readers
