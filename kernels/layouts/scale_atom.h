// The scale atom of the tensor cores that read block scales: four rows, `span` apart, side by side.
// An atom is 4 * span rows x 4 scales, 16 * span bytes: [row % span][row / span][scale]. Atoms follow one another
// along a row of atoms, then row after row. Span 32, 512 bytes, is NVIDIA's 128x4 layout (PTX
// tcgen05.mma block scaling, cuBLAS block scaling factors).
#pragma once

#include "kernels/layouts/layout.h"

namespace mxfp4 {

template <int span>
struct ScaleAtom {
  static constexpr int tile_n = 4 * span, tile_b = 4;
  static constexpr Byte at(int w, int i) { return {w % 4 * span + w / 4, i}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return (tn * (s.b / 4) + tb) * (16 * span) + w * 4;
  }
};

/// U8. FlashInfer's block_scale_interleave (0.6.x, cutlass SM100, SM103, SM120 and CuTe-DSL MoE) and vLLM's CUTLASS
/// MXFP4 MoE: zero-padded to 128 rows and 4 scales. Facts: FlashInfer's nvfp4_quantize kernel, byte-checked as host
/// code; CuTe-DSL reads the same bytes as the view (32, 4, N/128, 4, K/128, E).
struct Scales128x4 : ScaleAtom<32> {
  static constexpr const char* name = "sf_128x4.scales";
  static constexpr int store_n = 128, store_b = 4;
};

using ScaleAtomLayouts = LayoutList<Scales128x4>;

}  // namespace mxfp4
