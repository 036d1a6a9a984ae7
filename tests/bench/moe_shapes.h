// The sizes that a layer has in each CUDA MoE kernel. Apart from moe_bench.cu, since nvcc cannot compile fmt.
#pragma once

#include <vector>

#include "kernels/moe/cpu/kernel_format.h"
#include "kernels/moe/moe.h"

namespace mxfp4 {

struct PaddedShape {
  const KernelFormat* format;
  MoeConfig config;
};

/// One entry for each CUDA kernel: `shape` as vLLM pads it. If a kernel supports both row orders, gate and up are
/// halves.
std::vector<PaddedShape> padded_shapes(const MoeConfig& shape);

}  // namespace mxfp4
