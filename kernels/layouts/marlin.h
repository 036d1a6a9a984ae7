// Marlin as vLLM and SGLang hold MXFP4 experts for bf16 activations (vLLM 0.21 to 0.27.1, SGLang 0.5.11 to 0.5.17).
// vLLM main of 2026-07-26 and SGLang main of 2026-08-16 use the same bytes.
// Facts: gptq_marlin_repack (4 bits, no act-order), marlin_permute_scales, mxfp4_marlin_process_scales and
// marlin_permute_bias, byte-checked against both engines' CUDA kernels on an H200. The a8 forms are vLLM's for FP8
// activations (SM89, SM12x); that their scale bytes are 6 larger is BasicMatrix::add, their bias is MarlinBias.
#pragma once

#include "kernels/layouts/layout.h"

namespace mxfp4 {

/// I32 [K/16, 2N]. A tile is 64 rows x 16 columns. Word w of a tile is a thread's fragment of two 16x8 mma operands:
/// rows c and c+8 of warp w%4, columns 2r, 2r+1, 2r+8, 2r+9.
struct MarlinCodes : Unpadded {
  static constexpr const char* name = "marlin.codes";
  static constexpr int tile_n = 64, tile_b = 8;
  static constexpr Byte at(int w, int i) { return {w % 4 * 16 + w / 16 + i / 2 * 8, w / 4 % 4 + i % 2 * 4}; }
  static constexpr int bit(int i) { return nibble_bit({0, 2, 4, 6, 1, 3, 5, 7}, i); }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return ((tb * (s.n / tile_n) + tn) * 128 + w) * 4;
  }
};

/// F8_E8M0 [K/32, N]. In each 64 rows, position 8c + 4h + q holds row c + 8j, j = 4h + {0,2,1,3}[q].
struct MarlinScales : Unpadded {
  static constexpr const char* name = "marlin.scales";
  static constexpr int tile_n = 64, tile_b = 1;
  static constexpr Byte at(int w, int i) { return {w / 2 + 8 * (w % 2 * 4 + i % 2 * 2 + i / 2), 0}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return tb * s.n + tn * tile_n + w * 4; }
};

/// BF16 [N]. In each 32 elements, position 8i + 2a + b holds element 2i + 8a + b.
struct MarlinBias : Unpadded {
  static constexpr const char* name = "marlin.bias";
  static constexpr int tile_n = 32, tile_b = 2;
  static constexpr Byte at(int w, int i) { return {w / 4 * 2 + w % 4 * 8 + i / 2, i % 2}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return tb * s.n * tile_b + (tn * 16 + w) * 4;
  }
};

/// I32 [K/16, 2N]. A tile is 32 rows x 32 columns; word w is row c of warp w%4, columns 4r to 4r+3 and 4r+16 to 4r+19.
struct MarlinA8Codes : Unpadded {
  static constexpr const char* name = "marlin_a8.codes";
  static constexpr int tile_n = 32, tile_b = 16;
  static constexpr Byte at(int w, int i) { return {w % 4 * 8 + w / 16, w / 4 % 4 * 2 + i % 2 + i / 2 * 8}; }
  static constexpr int bit(int i) { return nibble_bit({0, 4, 1, 5, 2, 6, 3, 7}, i); }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return ((tb * (s.n / tile_n) + tn) * 128 + w) * 4;
  }
};

/// F8_E8M0 [K/32, N]. In each 32 rows, position 8i + 2a + b holds row 2i + 8a + b: the order of the bias.
struct MarlinA8Scales : Unpadded {
  static constexpr const char* name = "marlin_a8.scales";
  static constexpr int tile_n = 32, tile_b = 1;
  static constexpr Byte at(int w, int i) { return {w / 2 * 2 + w % 2 * 16 + i / 2 * 8 + i % 2, 0}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return tb * s.n + tn * tile_n + w * 4; }
};

using MarlinLayouts = LayoutList<MarlinCodes, MarlinScales, MarlinBias, MarlinA8Codes, MarlinA8Scales>;

}  // namespace mxfp4
