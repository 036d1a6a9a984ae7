// Activations that a wrong layer cannot survive.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/moe/moe_source.h"

namespace mxfp4 {

/// Random normal activations [tokens][hidden], exact in bf16. They are scaled so that the outputs of the source's w13
/// have the root mean square limit/2, or 2 if the model has no limit. With larger outputs nearly every value clamps,
/// which hides earlier errors; with smaller outputs a missing clamp has no effect.
std::vector<float> moe_inputs(const MoeConfig& config, const MoeSource& source, const Routing& routing, uint64_t seed);

/// The bf16 nearest to x, ties to even.
float round_to_bf16(float x);

}  // namespace mxfp4
