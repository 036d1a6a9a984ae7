// FlashInfer's SM90 cutlass mixed-input MoE. Its layout has two versions under the same function names, and no kernel
// detects a mismatch. Releases:
//
// - v1: 0.6.10 to 0.6.15.post1, 0.6.16.post3, 0.6.16.post4 and 0.6.17
// - v2: 0.6.16 to 0.6.16.post2, and 0.6.18 or later
// - fp4fp8, the W4A8 ("Humming") form with the scales of v2: the releases with v2
//
// Facts: interleave_moe_weights_for_sm90_mixed_gemm and interleave_moe_scales_for_sm90_mixed_gemm. v1 and v2 are
// byte-checked against FlashInfer's CUDA kernels on an H200, fp4fp8 against its kernel compiled as host code.
#pragma once

#include "kernels/layouts/hopper.h"
#include "kernels/layouts/scale_atom.h"

namespace mxfp4 {

/// The byte offset of word `word` (0..7) of row 8h + r of a tile in the storage.
constexpr int64_t sm90_offset(Shape s, int64_t tn, int64_t tb, int h, int r, int word) {
  return (tn * 16 + h * 8 + r) * s.b + tb * 32 + word * 4;
}

/// U8 [N, K/2].
struct FlashinferSm90V2Codes : HopperTile, Unpadded {
  static constexpr const char* name = "flashinfer_sm90_v2.codes";
  static constexpr int bit(int i) { return hopper_bit(i); }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return sm90_offset(s, tn, tb, w / 4 % 2, w / 16, w / 8 % 2 * 4 + w % 4);
  }
};

/// U8 [N, K/2]. v2's words with whole nibbles: a byte holds the same column of rows r (low) and r+8 (high).
struct FlashinferSm90V1Codes : FlashinferSm90V2Codes {
  static constexpr const char* name = "flashinfer_sm90_v1.codes";
  static constexpr int bit(int i) { return nibble_bit({0, 2, 1, 3, 4, 6, 5, 7}, i); }
};

/// U8 [N, K/2]. A word holds four columns of row r, then four of row r+8. The signs are stored at the sign bits of
/// E4M3: those of the first four codes in the odd nibbles, those of the last four in the even nibbles.
struct FlashinferSm90Fp4Fp8Codes : Unpadded {
  static constexpr const char* name = "flashinfer_sm90_fp4fp8.codes";
  static constexpr int tile_n = 16, tile_b = 32;
  static constexpr Byte at(int w, int i) { return {w / 16 + i / 2 * 8, w % 16 * 2 + i % 2}; }
  static constexpr int bit(int i) { return i % 4 < 3 ? i : i / 4 % 2 ? i / 8 * 4 + 3 : (i / 8 + 4) * 4 + 3; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return sm90_offset(s, tn, tb, w / 4 % 2, w / 16, w / 8 % 2 * 4 + w % 4);
  }
};

/// U8 [K/128, 4N]: the four scales of 128 columns, row after row.
struct FlashinferSm90V1Scales : Unpadded {
  static constexpr const char* name = "flashinfer_sm90_v1.scales";
  static constexpr int tile_n = 16, tile_b = 4;
  static constexpr Byte at(int w, int i) { return {w, i}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return (tb * s.n + tn * tile_n + w) * 4; }
};

/// U8 [N/64, K/128, 16, 16]: rows f, f+16, f+32 and f+48 side by side.
struct FlashinferSm90V2Scales : ScaleAtom<16>, Unpadded {
  static constexpr const char* name = "flashinfer_sm90_v2.scales";
};

using FlashinferSm90Layouts = LayoutList<FlashinferSm90V1Codes, FlashinferSm90V1Scales, FlashinferSm90V2Codes,
                                         FlashinferSm90V2Scales, FlashinferSm90Fp4Fp8Codes>;

}  // namespace mxfp4
