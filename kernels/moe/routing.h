// The routing of tokens to experts, with weights, by the rules of the model families.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/moe/moe.h"

namespace mxfp4 {

/// How the router's logits become scores and weights of the best top_k experts.
///   softmax: the best logits, then softmax over those alone (GPT-OSS).
///   sigmoid, sqrt_softplus: scores s(logit); chosen by score + bias, weighed by score (DeepSeek-V3, -V4).
enum class Scoring { softmax, sigmoid, sqrt_softplus };

/// A model's way of choosing experts.
struct RouterRule {
  Scoring scoring = Scoring::softmax;
  int64_t experts = 0;
  int top_k = 1;
  bool renormalise = true;  // weights of a token sum to 1 before `scaling`
  double scaling = 1;       // routed scaling factor, applied here and nowhere else
  std::vector<float> bias;  // [experts], only for the choice; may be empty
};

/// logits: [tokens][experts]. Equal scores: the lower expert first.
Routing route(const RouterRule& rule, std::span<const float> logits);

/// Routing of random logits.
Routing route_random(const RouterRule& rule, int64_t tokens, uint64_t seed);

/// Random weights; tokens use the experts in rotation, so all experts have tokens if tokens * top_k >= experts.
Routing route_to_every_expert(const RouterRule& rule, int64_t tokens, uint64_t seed);

/// One token's place with one expert: the index into ids and weights.
using Slots = std::vector<int64_t>;
/// The slots of every expert that a rank with `experts` experts holds.
std::vector<Slots> slots_of_experts(const Routing& routing, int64_t experts);
int64_t experts_covered(const Routing& routing);

}  // namespace mxfp4
