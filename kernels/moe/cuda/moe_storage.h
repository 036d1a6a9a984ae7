// The place of a layer's packed matrices in memory, for the GPU kernels that read them.
#pragma once

#include <string>

#include "kernels/moe/cpu/kernel_format.h"
#include "kernels/moe/cuda/operand_readers.h"

namespace mxfp4 {

inline constexpr int max_cuda_experts = 1024;

/// Bytes of one expert's packed tensors.
struct MoeBytes {
  int64_t w13 = 0, w13_scale = 0, w2 = 0, w2_scale = 0;
};
MoeBytes moe_bytes(const MoeConfig& config, const KernelFormat& format);

/// The reason why the CUDA kernels do not support a layer of this size; empty if they do.
std::string moe_refusal(const MoeConfig& config, const KernelFormat& format);
/// Bytes of GPU memory for a layer and one batch of `tokens` tokens.
int64_t moe_device_bytes(const MoeConfig& config, const KernelFormat& format, int64_t tokens);

/// One matrix of `n` rows and `k` codes: bytes per expert, and the kernels' view of it, without addresses.
/// Throws std::invalid_argument for a size that the format does not take.
struct StoredMatrix {
  int64_t words = 0, scales = 0;
  OperandMatrix view;
};
StoredMatrix stored_matrix(const KernelFormat& format, int64_t n, int64_t k);

}  // namespace mxfp4
