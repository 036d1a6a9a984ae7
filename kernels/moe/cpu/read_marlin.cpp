// Marlin: a warp's lane reads 16 bytes, four words, one for each 16-row slab of its operand. Lane 4c + r of an
// mma operand B holds rows (features) c and c + 8 of the slab, at the columns that the mma gives to r.
#include "kernels/moe/cpu/readers.h"

namespace mxfp4::readers {
namespace {

/// bf16 activations, mma m16n8k16: a tile is 64 rows x 16 columns, 512 bytes, tiles of one 16-column step side by side.
/// The kernel masks a word with 0x000F000F after shifts of 0, 4, 8 and 12. The four results are columns (2r, 2r+1) and
/// (2r+8, 2r+9) of row c, then of row c + 8. A lane's scales of a 64-row tile are 8 bytes; expanding them four at a
/// time to bf16 leaves them as bytes 0, 2, 1, 3.
void read_marlin(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  constexpr int expanded[4] = {0, 2, 1, 3};
  const int64_t width = k1 - k0;
  for (int64_t k = k0; k < k1; k += 16) {
    const uint8_t* tile = m.codes + (k / 16 * (m.n / 64) + n0 / 64) * 512;
    const uint8_t* scales = m.scales + k / 32 * m.n + n0;
    for (int lane = 0; lane < 32; ++lane)
      for (int slab = 0; slab < 4; ++slab) {
        uint32_t w = word(tile + 16 * lane + 4 * slab);
        for (int half = 0; half < 2; ++half, w >>= 8) {
          const int eighth = 2 * slab + half;  // which 8 rows of the 64
          const float scale = exponent(scales[lane / 4 * 8 + eighth / 4 * 4 + expanded[eighth % 4]]);
          float* to = out + (8 * eighth + lane / 4) * width + (k - k0) + 2 * (lane % 4);
          to[0] = code(w) * scale;
          to[1] = code(w >> 16) * scale;
          to[8] = code(w >> 4) * scale;
          to[9] = code(w >> 20) * scale;
        }
      }
  }
}

/// FP8 activations, mma m16n8k32: a tile is 32 rows x 32 columns, a word an 8-row slab. Even nibbles are the columns
/// 4r..4r+3 of the first operand register, odd ones those of the second, 16 further on. The codes go into E4M3 as they
/// are, which makes them 2^-6 too small; the scales, applied to the accumulator, are stored 6 too large. An
/// accumulator's lane holds rows 2i, 2i+1 of each 8-row slab, and reads their 8 scales at once.
void read_marlin_fp8(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  constexpr float e4m3_of_e2m1 = 1.0f / 64;
  const int64_t width = k1 - k0;
  for (int64_t k = k0; k < k1; k += 32) {
    const uint8_t* tile = m.codes + (k / 32 * (m.n / 32) + n0 / 32) * 512;
    const uint8_t* scales = m.scales + k / 32 * m.n + n0;
    for (int lane = 0; lane < 32; ++lane)
      for (int slab = 0; slab < 4; ++slab) {
        const uint32_t w = word(tile + 16 * lane + 4 * slab);
        const int row = lane / 4;
        const float scale = exponent(scales[row / 2 * 8 + 2 * slab + row % 2]);
        float* to = out + (8 * slab + row) * width + (k - k0) + 4 * (lane % 4);
        for (int i = 0; i < 4; ++i) {
          to[i] = code(w >> 8 * i) * e4m3_of_e2m1 * scale;
          to[16 + i] = code(w >> (8 * i + 4)) * e4m3_of_e2m1 * scale;
        }
      }
  }
}

constexpr KernelFormat marlin_rows[] = {
    {.name = "marlin",
     .rows = 64,
     .columns = 16,
     .read = read_marlin,
     .bias = BiasForm::bf16_mma,
     .cuda = CudaReader::marlin},
    {.name = "marlin-fp8", .rows = 32, .columns = 32, .read = read_marlin_fp8, .bias = BiasForm::bf16_mma},
};

}  // namespace

constinit const std::span<const KernelFormat> marlin_formats = marlin_rows;

}  // namespace mxfp4::readers
