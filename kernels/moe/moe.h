// The fused MoE forward that `verify --level kernels` runs: the types of a layer and of a token batch. Nothing in this
// folder knows kernels/layouts/layout.h: a kernel that read packed words through the layout's own functions would
// accept a consistently wrong layout.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace mxfp4 {

/// How w13 interleaves gate and up: alternating blocks of `block` rows; 0: two halves, 1: pairs.
struct W13Order {
  int64_t block = 0;
  bool up_first = false;
  friend constexpr bool operator==(const W13Order&, const W13Order&) = default;
};

/// Sizes of one layer (per tensor-parallel rank) and its activation.
///   g = min(gate, limit); u = clamp(up, -limit, limit); out = g * sigmoid(alpha * g) * (u + beta)
/// SiLU: alpha 1, beta 0. GPT-OSS: alpha 1.702, beta 1, limit 7.
struct MoeConfig {
  int64_t experts = 0, hidden = 0, intermediate = 0;   // as in the checkpoint
  int64_t padded_hidden = 0, padded_intermediate = 0;  // as packed by the engine
  int64_t w13_block = 0;                               // rows in alternating blocks of gate and up; 0: two halves
  bool w13_up_first = false;
  int top_k = 1;
  double alpha = 1, beta = 0, limit = std::numeric_limits<double>::infinity();
};

/// One layer's packed tensors in memory order, experts outermost; bias pointers are null if the layer has no biases.
struct PackedMoe {
  const uint8_t *w13 = nullptr, *w13_scale = nullptr, *w13_bias = nullptr;
  const uint8_t *w2 = nullptr, *w2_scale = nullptr, *w2_bias = nullptr;
  const float *w13_residual = nullptr, *w2_residual = nullptr;  // [experts], if scales are offsets from it; else null
};

/// Experts and weights of each token, [tokens][top_k]; weights already hold renormalisation and routed scaling.
/// An id of -1 marks an expert of another rank: it contributes nothing.
struct Routing {
  int64_t tokens = 0;
  int top_k = 1;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

}  // namespace mxfp4
