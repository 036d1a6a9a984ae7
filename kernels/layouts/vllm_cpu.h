// vLLM's CPU MoE (AVX-512 and AMX; mid-2026): blocks of 32 rows, columns outermost within a block.
// Facts: convert_weight_packed and convert_scale_packed; the codes byte-checked, the scales read.
#pragma once

#include "kernels/layouts/layout.h"

namespace mxfp4 {

/// U8 [N/32, K/2, 32]. Byte 2r of a column pair holds the even column's codes of rows r (low) and r+16 (high), byte
/// 2r+1 the odd column's. A tile is 16 column pairs.
struct VllmCpuCodes : Unpadded {
  static constexpr const char* name = "vllm_cpu.codes";
  static constexpr int tile_n = 32, tile_b = 16;
  static constexpr Byte at(int w, int i) { return {w % 8 * 2 + i % 2 + i / 2 * 16, w / 8}; }
  static constexpr int bit(int i) { return nibble_bit({0, 4, 1, 5, 2, 6, 3, 7}, i); }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return (tn * s.b + tb * 16) * 32 + w * 4; }
};

/// U8 [N/32, K/32, 32].
struct VllmCpuScales : Unpadded {
  static constexpr const char* name = "vllm_cpu.scales";
  static constexpr int tile_n = 32, tile_b = 1;
  static constexpr Byte at(int w, int i) { return {w * 4 + i, 0}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return (tn * s.b + tb) * 32 + w * 4; }
};

using VllmCpuLayouts = LayoutList<VllmCpuCodes, VllmCpuScales>;

}  // namespace mxfp4
