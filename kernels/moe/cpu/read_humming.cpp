// Humming. For bf16 activations a lane reads 16 bytes: four words, one for each 16 rows of a 64-row tile. For FP8
// activations it reads 16 bytes of 16 rows and 64 columns.
#include "kernels/moe/cpu/readers.h"

namespace mxfp4::readers {
namespace {

/// Lane 4c + r holds rows c and c + 8 of 16, at columns 2r, 2r + 1, 2r + 8 and 2r + 9. The kernel shifts a word by 12,
/// 8, 4 and 0 into four registers of two codes each, nibbles i and i + 4. For mma the registers hold a row's columns in
/// order. For wgmma, whose first operand is the weights, they hold a column's rows. A lane's scales of a tile are 8
/// bytes, one for each of its rows. The tiles of one 16-column step are contiguous, up to a multiple of 256 rows.
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

void read_humming(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  read<Registers::mma>(m, n0, k0, k1, out);
}
void read_humming_wgmma(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  read<Registers::wgmma>(m, n0, k0, k1, out);
}

/// Lane 4c + r holds rows c and c + 8, at columns 4r to 4r + 3 and 4r + 16 to 4r + 19. These are two words; two more
/// words hold the next 32 columns. The three low bits of a nibble select an E4M3 byte from the table; nibbles 0 to 3
/// are the first four columns. Each step of the scale adds 8 to the byte, so a scale is an offset: 2^offset * residual.
/// The sign is bit 7 of a byte of the word, which is shifted left by 4 for the first four columns.
void read_humming_fp8(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out) {
  const int64_t width = k1 - k0, rows = round_up(m.n, 256);
  for (int64_t k = k0; k < k1; k += 32) {
    const uint8_t* tile = m.codes + (k / 64 * (rows / 16) + n0 / 16) * 512 + k % 64 / 32 * 8;
    const uint8_t* scales = m.scales + k / 32 * rows + n0 / 64 * 64 + n0 % 64 / 16 * 2;
    for (int lane = 0; lane < 32; ++lane)
      for (int half : {0, 1}) {
        const uint32_t w = word(tile + 16 * lane + 4 * half);
        const float scale = exponent(scales[lane / 4 * 8 + half]) * 0x1p127f * m.residual;
        float* to = out + (8 * half + lane / 4) * width + (k - k0) + lane % 4 * 4;
        for (int column = 0; column < 8; ++column) {
          const uint32_t sign = (column < 4 ? w << 4 : w) >> (column % 4 * 8 + 7) & 1;
          to[column / 4 * 16 + column % 4] = code((w >> 4 * column & 7) | sign << 3) * scale;
        }
      }
  }
}

constexpr KernelFormat humming(const char* name, int64_t columns, ReadBlock* read, CudaReader cuda = CudaReader::none) {
  return {.name = name,
          .rows = 16,
          .columns = columns,
          .read = read,
          .codes = {256, 128},
          .scales = {256, 4},
          .bias = BiasForm::bf16_mma,
          .bias_rows = 256,
          .cuda = cuda};
}

constexpr KernelFormat humming_rows[] = {
    humming("humming", 16, read_humming, CudaReader::humming),
    humming("humming-wgmma", 16, read_humming_wgmma, CudaReader::humming_wgmma),
    rewritten(humming("humming-w4a8", 32, read_humming_fp8)),
};

}  // namespace

constinit const std::span<const KernelFormat> humming_formats = humming_rows;

}  // namespace mxfp4::readers
