// triton_kernels' Hopper layouts (mma version 3), as vLLM, SGLang and transformers use them on SM90. The storage
// padding of values has three generations. A is triton 3.5: vLLM up to 0.16 and from May 2026, and the Hub kernels of
// transformers. B is triton 3.6 and 3.7, C is 3.8. Every version reads C, because kernels take strides from the tensor.
// Scales are padded to four groups: kernels to 3.7 read tiles of four without a mask (vllm#47303). SGLang 0.5.17 and
// 0.5.18 pad them to two, as the package itself does. Facts: triton_kernels' hopper_value and hopper_scale layouts; A,
// B and C run on an H200 in 3.5.1 and 3.6.0 give the bits of the package's own conversion.
#pragma once

#include "kernels/layouts/hopper.h"

namespace mxfp4 {

/// U8, memory [N'/4, 4K'/2], read as its transpose.
template <int rows, int bytes>
struct TritonHopperCodes : HopperTile {
  static constexpr int store_n = rows, store_b = bytes;
  static constexpr int bit(int i) { return hopper_bit(i); }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    const int row = w / 32, word = w / 16 % 2 * 16 + w % 4 * 4 + w / 4 % 4;
    return (tn * 4 + row) * s.b * 4 + tb * 128 + word * 4;
  }
};
struct TritonHopperCodesA : TritonHopperCodes<16, 32> {
  static constexpr const char* name = "triton_hopper_a.codes";
};
struct TritonHopperCodesB : TritonHopperCodes<64, 64> {
  static constexpr const char* name = "triton_hopper_b.codes";
};
struct TritonHopperCodesC : TritonHopperCodes<256, 64> {
  static constexpr const char* name = "triton_hopper_c.codes";
};

/// U8, memory [N'/32, 32G'], read as its transpose. Within each 256 rows, row r of the result holds rows 16r to
/// 16r+15, then the 16 rows 128 further down. A word holds rows n and n+8 of group g, then of group g+1.
template <int groups>
struct TritonHopperScales {
  static constexpr int warps = 8;  // of the kernel
  static constexpr int tile_n = 16, tile_b = 2, store_n = 32 * warps, store_b = groups;
  static constexpr Byte at(int w, int i) { return {w + i % 2 * 8, i / 2}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    const int64_t row = tn / (2 * warps) * warps + tn % warps, half = tn / warps % 2;
    return row * s.b * 32 + tb * 64 + half * 32 + w * 4;
  }
};
struct TritonHopperScalesW8 : TritonHopperScales<4> {
  static constexpr const char* name = "triton_hopper_w8.scales";
};
struct TritonHopperScalesW8Pairs : TritonHopperScales<2> {
  static constexpr const char* name = "triton_hopper_w8_pairs.scales";
};

using TritonHopperLayouts = LayoutList<TritonHopperCodesA, TritonHopperCodesB, TritonHopperCodesC, TritonHopperScalesW8,
                                       TritonHopperScalesW8Pairs>;

}  // namespace mxfp4
