// DeepGEMM's MXFP4 scales on SM10x and SM12x (54e2261 of 2026-06-23; vLLM and SGLang); the codes are plain.
// Both forms have the same shape and strides, so no kernel can tell them apart. Facts:
// transform_sf_into_required_layout and the mega-MoE weight transform, byte-checked against the library's host code.
#pragma once

#include "kernels/layouts/scale_atom.h"

namespace mxfp4 {

/// I32, memory [K'/128, N'], read as [N, K'/128] ("MN-major"): four scales a word, both sides zero-padded to 4.
struct DeepgemmScales {
  static constexpr const char* name = "deepgemm.scales";
  static constexpr int tile_n = 4, tile_b = 4, store_n = 4, store_b = 4;
  static constexpr Byte at(int w, int i) { return {w, i}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return (tb * s.n + tn * 4 + w) * 4; }
};

/// I32 [K'/128, N]: the same words as above, but each block of 128 rows is in the order of UTCCP: row 32i + j is stored
/// at 4j + i. A block is then a 128x4 atom, with the columns outermost.
struct DeepgemmMegaScales : ScaleAtom<32> {
  static constexpr const char* name = "deepgemm_mega.scales";
  static constexpr int store_n = 1, store_b = 4;
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return (tb * s.n + tn * 128 + w) * 4; }
};

using DeepgemmLayouts = LayoutList<DeepgemmScales, DeepgemmMegaScales>;

}  // namespace mxfp4
