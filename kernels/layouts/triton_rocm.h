// triton_kernels' unswizzled scales on ROCm (triton_kernels 3.8, part of vLLM 0.31.0 and later): StridedLayout has its
// unit stride along the rows. Facts: triton_kernels 3.8 from sglang-kernel 0.4.10, run on a CPU.
#pragma once

#include "kernels/layouts/layout.h"

namespace mxfp4 {

/// U8 [K/32, N].
struct TritonRocmScales : Unpadded {
  static constexpr const char* name = "triton_rocm.scales";
  static constexpr int tile_n = 32, tile_b = 1;
  static constexpr Byte at(int w, int i) { return {w * 4 + i, 0}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) { return tb * s.n + tn * 32 + w * 4; }
};

using TritonRocmLayouts = LayoutList<TritonRocmScales>;

}  // namespace mxfp4
