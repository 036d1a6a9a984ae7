// The MoE layer in double from the checkpoint's own rows, the reference for every kernel's result. It never reads
// packed bytes and shares no code with the kernels that do.
#pragma once

#include <span>
#include <vector>

#include "kernels/moe/moe_source.h"

namespace mxfp4 {

struct MoeReference {
  std::vector<double> out;  // [tokens][hidden]
  double w13_rms = 0;       // of gate and up outputs before the activation, bias included
  double clamped = 0;       // share of those outputs that the activation's limit changes
};

/// x: [tokens][config.hidden]. Only experts with tokens are computed. Set `reading` only to compute the result of a
/// mistake.
MoeReference moe_reference(const MoeConfig& config, const MoeSource& source, std::span<const float> x,
                           const Routing& routing, const Reading& reading = {});

/// Root mean squares over w13, from at most 4 tokens and 128 rows per matrix of each expert hit.
struct W13Sample {
  double products = 0, biases = 0;
};
W13Sample sample_w13(const MoeConfig& config, const MoeSource& source, std::span<const float> x,
                     const Routing& routing);

}  // namespace mxfp4
