// One packed layer ready to run, on the CPU by its format or on a CUDA GPU.
#pragma once

#include <memory>
#include <string>

#include "kernels/moe/cpu/moe_cpu.h"

namespace mxfp4 {

class MoeKernel {
 public:
  virtual ~MoeKernel() = default;
  /// x: [tokens][hidden], exact in bf16.
  virtual MoeCpuOutput run(std::span<const float> x, const Routing& routing) = 0;
};

/// `packed` must outlive the kernel. cuda: see cuda_kernel_missing().
std::unique_ptr<MoeKernel> open_moe_kernel(const KernelFormat& format, const MoeConfig& config, const PackedMoe& packed,
                                           bool cuda);

/// The reason why no CUDA GPU can read the format here; empty if one can.
std::string cuda_kernel_missing(const KernelFormat& format);
/// The reason for all ranks of one layer together, with batches of `tokens` tokens.
std::string cuda_kernel_missing(const KernelFormat& format, std::span<const MoeConfig> ranks, int64_t tokens);

/// The tolerance for the relative L2 error on a GPU; `cuda_reason` explains its size.
inline constexpr double cuda_tolerance = 3e-3;
inline constexpr const char* cuda_reason = "activations between the products and the result rounded to bf16";

}  // namespace mxfp4
