// AITER's MoE on gfx950 (e404860 of 2026-08-22; vLLM and SGLang), and triton's CDNA4 scales, which are the same bytes.
// The "gate_up" forms of a16w4 are these layouts over w13 in blocks of 16 gate and 16 up rows. The engines pad hidden
// and intermediate to 256, so a layout has nothing to pad. Facts: shuffle_weight,
// shuffle_weight_a16w4, shuffle_scale_a16w4 and e8m0_shuffle, byte-checked against AITER's host code.
#pragma once

#include "kernels/layouts/layout.h"

namespace mxfp4 {

/// U8 [N, K/2] holding [N/16][K/32][16 rows][16 bytes]; a tile is two such blocks, the least K that AITER takes.
struct Aiter16x16Codes : Unpadded {
  static constexpr const char* name = "aiter_16x16.codes";
  static constexpr int tile_n = 16, tile_b = 32;
  static constexpr Byte at(int w, int i) { return {w / 4 % 16, w / 64 * 16 + w % 4 * 4 + i}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return tn * 16 * s.b + tb * 512 + w * 4; }
};

/// U8 [N, K/32] holding [N/32][K/256][4: g % 4][16: n % 16][2: g / 4][2: n / 16] for row n and scale g of a tile.
struct Cdna4Scales : Unpadded {
  static constexpr const char* name = "cdna4.scales";
  static constexpr int tile_n = 32, tile_b = 8;
  static constexpr Byte at(int w, int i) { return {w % 16 + i % 2 * 16, w / 16 + i / 2 * 4}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return tn * 32 * s.b + tb * 256 + w * 4; }
};

using AiterLayouts = LayoutList<Aiter16x16Codes, Cdna4Scales>;

}  // namespace mxfp4
