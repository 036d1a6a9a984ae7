// Humming, bf16 activations: a warp's lane reads 16 bytes, four words, one for each 16 rows of a 64-row tile.
#include "kernels/moe/cpu/readers.h"

namespace mxfp4::readers {
namespace {

/// Lane 4c + r holds rows c and c + 8 of 16, at columns 2r, 2r + 1 and 8 further on. The kernel shifts a word by 12, 8,
/// 4 and 0 into four registers of two codes each, nibbles i and i + 4. mma takes a row's columns one after the other,
/// wgmma, whose first operand the weights are, a column's rows. A lane's scales of a tile are 8 bytes, one for each of
/// its rows. Tiles of one 16-column step lie side by side, as many as 256 rows need.
enum class Registers { mma, wgmma };

template <Registers order>
void read(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t width = k1 - k0, rows = round_up(m.n, 256), slab = n0 % 64 / 16;
  for (int64_t k = k0; k < k1; k += 16) {
    const uint8_t* tile = m.codes + (k / 16 * (rows / 64) + n0 / 64) * 512;
    const uint8_t* scales = m.scales + k / 32 * rows + n0 / 64 * 64 + 2 * slab;
    for (int lane = 0; lane < 32; ++lane) {
      const uint32_t w = word(tile + 16 * lane + 4 * slab);
      for (int i = 0; i < 4; ++i) {
        const int row = order == Registers::mma ? i / 2 : i % 2, column = order == Registers::mma ? i % 2 : i / 2;
        const float scale = exponent(scales[lane / 4 * 8 + row]);
        float* to = out + (8 * row + lane / 4) * width + (k - k0) + 8 * column + 2 * (lane % 4);
        to[0] = code(w >> 4 * i) * scale;
        to[1] = code(w >> (4 * i + 16)) * scale;
      }
    }
  }
}

}  // namespace

void read_humming(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  read<Registers::mma>(m, n0, k0, k1, out);
}
void read_humming_wgmma(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  read<Registers::wgmma>(m, n0, k0, k1, out);
}

}  // namespace mxfp4::readers
