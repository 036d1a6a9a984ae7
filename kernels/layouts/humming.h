// Humming as vLLM (0.32.0, 0.33.0) and SGLang (0.5.19 to 0.5.23) hold MXFP4 experts on SM90. For bf16 activations words
// are Marlin's fragments. Storage is padded to 256 rows and 128 columns.
// Facts: humming-kernels 0.1.12, 0.1.17 and 0.1.19: transform.py run as it is, its CUDA kernels compiled for the host.
#pragma once

#include "kernels/layouts/marlin.h"

namespace mxfp4 {

/// I32 [K/16, 2N], from 0.1.17 on.
struct HummingCodes : MarlinCodes {
  static constexpr const char* name = "humming.codes";
  static constexpr int store_n = 256, store_b = 64;
};

/// I32 [K/16, 2N], up to 0.1.16: the order of wgmma's registers, in which row c + 8 comes before column 2r + 8.
struct HummingWgmmaCodes : HummingCodes {
  static constexpr const char* name = "humming_wgmma.codes";
  static constexpr int bit(int i) { return nibble_bit({0, 4, 2, 6, 1, 5, 3, 7}, i); }
};

/// F8_E8M0 [K/32, N]. In each 64 rows, position 8c + j holds row c + 8j.
struct HummingScales : MarlinScales {
  static constexpr const char* name = "humming.scales";
  static constexpr int store_n = 256, store_b = 4;
  static constexpr Byte at(int w, int i) { return {w / 2 + 8 * (w % 2 * 4 + i), 0}; }
};

/// I32 [K/64, 8N], for FP8 activations (vLLM 0.33.0, humming-kernels 0.1.19): a lane of FP8 wgmma reads 16 bytes of 16
/// rows and 64 columns. A word holds 4 columns of a row and the 4 columns 16 further on. Its magnitudes are in that
/// order; its signs are in the order in which the kernel shifts them out.
struct HummingFp8Codes {
  static constexpr const char* name = "humming_fp8.codes";
  static constexpr int tile_n = 16, tile_b = 32;
  static constexpr int store_n = 256, store_b = 64;
  static constexpr Byte at(int w, int i) {
    return {w / 4 / 4 + w % 2 * 8, w % 4 / 2 * 16 + i / 2 * 8 + w / 4 % 4 * 2 + i % 2};
  }
  static constexpr int bit(int i) { return i % 4 == 3 ? nibble_bit({0, 4, 1, 5, 2, 6, 3, 7}, i) : i; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return ((tb * (s.n / tile_n) + tn) * 128 + w) * 4;
  }
};

/// BF16 [N].
struct HummingBias : MarlinBias {
  static constexpr const char* name = "humming.bias";
  static constexpr int store_n = 256;
};

using HummingLayouts = LayoutList<HummingCodes, HummingWgmmaCodes, HummingFp8Codes, HummingScales, HummingBias>;

}  // namespace mxfp4
