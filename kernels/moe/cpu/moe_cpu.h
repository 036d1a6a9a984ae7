// The MoE layer on packed bytes on the CPU, by one kernel's format.
#pragma once

#include <span>
#include <vector>

#include "kernels/moe/cpu/kernel_format.h"

namespace mxfp4 {

struct MoeCpuOutput {
  std::vector<float> out;  // [tokens][hidden], pads trimmed
  int64_t leaks = 0;       // values that are not 0 in padded columns of the activation or of the result
};

/// Computes the layer. x: [tokens][config.hidden]; padding with zeros is done inside. config.w13_block and
/// .w13_up_first give the row order.
MoeCpuOutput moe_cpu(const KernelFormat& format, const MoeConfig& config, const PackedMoe& packed,
                     std::span<const float> x, const Routing& routing);

}  // namespace mxfp4
