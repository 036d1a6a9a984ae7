// How the packed matrices of a layer lie in memory, seen from the GPU kernels that read them.
#pragma once

#include <string>
#include <string_view>

#include "kernels/moe/cuda/moe_words.h"
#include "kernels/moe/moe.h"

namespace mxfp4 {

inline constexpr int max_cuda_experts = 1024;

enum class MoeFormat { marlin, flashinfer_v1, flashinfer_v2, triton_hopper };

/// How the packed matrices are stored beyond the engine's padding.
/// Triton Hopper: generation A row_multiple 16, k_multiple 64; B 64, 128; C 256, 128. Its scales: rows to
/// 32 * scale_warps, groups to 4, always.
struct MoeStorage {
  MoeFormat format = MoeFormat::marlin;
  int64_t row_multiple = 1, k_multiple = 1;
  int scale_warps = 8;
};

/// By the name of kernels/moe/cpu/moe_fragment.h; null where no CUDA kernel reads it.
const MoeStorage* find_moe_storage(std::string_view fragment);

/// Bytes of one expert's packed tensors.
struct MoeBytes {
  int64_t w13 = 0, w13_scale = 0, w2 = 0, w2_scale = 0, bias_element = 2;
};
MoeBytes moe_bytes(const MoeConfig& config, const MoeStorage& storage);

/// Why the CUDA kernels do not take a layer of this size; empty where they do.
std::string moe_refusal(const MoeConfig& config, const MoeStorage& storage);
/// Of the GPU, for a layer and one batch of so many tokens.
int64_t moe_device_bytes(const MoeConfig& config, const MoeStorage& storage, int64_t tokens);

/// One matrix of `n` rows and `k` codes: bytes per expert, and the kernels' view of it, without addresses.
/// Throws std::invalid_argument for a size that the format does not take.
struct StoredMatrix {
  int64_t words = 0, scales = 0;
  FragmentMatrix view;
};
StoredMatrix stored_matrix(const MoeStorage& storage, int64_t n, int64_t k);

}  // namespace mxfp4
