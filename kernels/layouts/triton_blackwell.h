// triton_kernels' Blackwell layouts (3.5 to 3.8), as vLLM and SGLang use them on SM10x:
// BlackwellMXValueLayout and BlackwellMXScaleLayout. Facts: byte-checked against the package's host code.
#pragma once

#include "kernels/layouts/scale_atom.h"

namespace mxfp4 {

/// U8, memory [N, K'/2], read as its transpose: the rows, each padded to 128 bytes.
struct TritonBlackwellCodes : PlainRows<128> {
  static constexpr const char* name = "triton_blackwell.codes";
};

/// U8 [1, N'/128, K'/128, 2, 256]: 128x4 atoms, zero-padded to 128 rows and 8 scales.
struct TritonBlackwellScales : ScaleAtom<32> {
  static constexpr const char* name = "triton_blackwell.scales";
  static constexpr int store_n = 128, store_b = 8;
};

using TritonBlackwellLayouts = LayoutList<TritonBlackwellCodes, TritonBlackwellScales>;

}  // namespace mxfp4
