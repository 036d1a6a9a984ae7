// FlashInfer's trtllm-gen MoE on SM10x (trtllm_fp4_block_scale_moe; vLLM and SGLang). BF16 and MXFP8 activations use
// the same bytes. The rows of FC1 are first ordered as pairs (up, gate). Then the rows of codes, scales and bias are
// shuffled in blocks of 32 for the kernel's epilogue tile of 128. Facts: shuffle_matrix_a, shuffle_matrix_sf_a and
// get_w2_permute_indices_with_cache of FlashInfer 0.6.18, all row indices byte-checked.
#pragma once

#include "kernels/layouts/scale_atom.h"

namespace mxfp4 {

/// The source of row j of the result, both counted from the block of 32 rows that holds them.
constexpr int trtllm_row(int j) { return j / 32 * 32 + j % 8 * 4 + j % 32 / 8; }

/// Rows of a multiple of `bytes` bytes, shuffled.
template <int bytes>
struct TrtllmRows : Unpadded {
  static constexpr int tile_n = 32, tile_b = bytes;
  static constexpr Byte at(int w, int i) { return {trtllm_row(w * 4 / bytes), w * 4 % bytes + i}; }
  static constexpr int64_t offset(Shape s, int64_t tn, int64_t tb, int w) {
    return (tn * 32 + w * 4 / bytes) * s.b + tb * bytes + w * 4 % bytes;
  }
};

/// U8 [N, K/2].
struct TrtllmCodes : TrtllmRows<64> {
  static constexpr const char* name = "trtllm.codes";
};

/// F32 [N].
struct TrtllmBias : TrtllmRows<4> {
  static constexpr const char* name = "trtllm.bias";
};

/// F8_E4M3 (a label: the bytes are E8M0) [N, K/32]: shuffled, then in 128x4 atoms.
struct TrtllmScales : ScaleAtom<32> {
  static constexpr const char* name = "trtllm.scales";
  static constexpr int store_n = 1, store_b = 4;
  static constexpr Byte at(int w, int i) { return {trtllm_row(ScaleAtom<32>::at(w, i).n), i}; }
};

using TrtllmLayouts = LayoutList<TrtllmCodes, TrtllmScales, TrtllmBias>;

}  // namespace mxfp4
