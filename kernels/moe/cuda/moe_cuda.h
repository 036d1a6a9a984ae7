// The fused MoE forward on a CUDA GPU, over packed weights as the engines' own kernels take them.
// No CUDA header is needed here; without CUDA the same functions throw (moe_nocuda.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/moe/cuda/moe_storage.h"
#include "kernels/moe/moe.h"

namespace mxfp4 {

/// The result of a forward. `padded` is the largest absolute value in the output columns beyond `hidden`, which the
/// engine's padding must leave at 0.
struct MoeOutput {
  std::vector<float> out;  // [tokens][hidden], rounded to bf16 as the engines return it
  float padded = 0;
};

/// One layer on the GPU. Errors are DeviceError and name the CUDA call.
/// Sizes: n and k multiples of 64 as padded by the engine (Triton: n of 32), w13_block 0 or 1,
/// experts <= 1024.
class CudaMoe {
 public:
  virtual ~CudaMoe() = default;
  /// x: bf16 bits [tokens][hidden]. Runs repeat bit for bit.
  virtual MoeOutput forward(const std::vector<uint16_t>& x, const Routing& routing) = 0;
  /// After this call only mma.sync is used, as on a GPU without wgmma. Marlin only.
  virtual void avoid_wgmma() = 0;
};

/// Uploads a layer from host memory. Tensor sizes: moe_bytes() times experts; biases [experts][n], Marlin and
/// FlashInfer bf16, Triton fp32. Throws std::invalid_argument with the text of moe_refusal() if that is not empty.
std::unique_ptr<CudaMoe> upload_moe(const MoeConfig& config, const KernelFormat& format, const PackedMoe& host);

/// The reason why a forward of this format with `bytes` of GPU memory cannot run here; empty if it can.
std::string moe_cuda_missing(const KernelFormat& format, int64_t bytes = 0);

}  // namespace mxfp4
