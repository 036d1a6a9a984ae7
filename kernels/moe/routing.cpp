#include "kernels/moe/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>

namespace mxfp4 {
namespace {

double score(Scoring scoring, double logit) {
  switch (scoring) {
    case Scoring::softmax:
      return logit;
    case Scoring::sigmoid:
      return 1 / (1 + std::exp(-logit));
    case Scoring::sqrt_softplus:
      return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
  }
  throw std::logic_error("no such scoring");
}

/// Indices of the top_k largest, largest first.
std::vector<int32_t> best(const std::vector<double>& keys, int top_k) {
  std::vector<int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int32_t a, int32_t b) { return keys[a] != keys[b] ? keys[a] > keys[b] : a < b; };
  std::partial_sort(order.begin(), order.begin() + top_k, order.end(), better);
  order.resize(top_k);
  return order;
}

/// Scores of one token's experts to weights, in place.
void weigh(const RouterRule& rule, std::vector<double>& weights) {
  if (rule.scoring == Scoring::softmax) {
    const double largest = *std::max_element(weights.begin(), weights.end());
    for (double& w : weights) w = std::exp(w - largest);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double by = rule.scaling / (rule.renormalise || rule.scoring == Scoring::softmax ? sum : 1.0);
  for (double& w : weights) w *= by;
}

void check(const RouterRule& rule) {
  if (rule.top_k < 1 || rule.top_k > rule.experts) throw std::invalid_argument("top_k is not in 1..experts");
}

}  // namespace

Routing route(const RouterRule& rule, std::span<const float> logits) {
  check(rule);
  Routing routing;
  routing.top_k = rule.top_k;
  routing.tokens = int64_t(logits.size()) / rule.experts;
  std::vector<double> scores(rule.experts), keys(rule.experts), weights(rule.top_k);
  for (int64_t t = 0; t < routing.tokens; ++t) {
    for (int64_t e = 0; e < rule.experts; ++e) {
      scores[e] = score(rule.scoring, logits[t * rule.experts + e]);
      keys[e] = scores[e] + (rule.bias.empty() ? 0.0f : rule.bias[e]);
    }
    const std::vector<int32_t> chosen = best(keys, rule.top_k);
    for (int j = 0; j < rule.top_k; ++j) weights[j] = scores[chosen[j]];
    weigh(rule, weights);
    routing.ids.insert(routing.ids.end(), chosen.begin(), chosen.end());
    routing.weights.insert(routing.weights.end(), weights.begin(), weights.end());
  }
  return routing;
}

Routing route_random(const RouterRule& rule, int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(tokens * rule.experts);
  for (float& x : logits) x = normal(random);
  return route(rule, logits);
}

Routing route_to_every_expert(const RouterRule& rule, int64_t tokens, uint64_t seed) {
  Routing routing = route_random(rule, tokens, seed);
  std::vector<int32_t> order(rule.experts);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  for (size_t i = 0; i < routing.ids.size(); ++i) routing.ids[i] = order[i % order.size()];
  return routing;
}

std::vector<Slots> slots_of_experts(const Routing& routing, int64_t experts) {
  std::vector<Slots> slots(experts);
  for (size_t i = 0; i < routing.ids.size(); ++i)
    if (routing.ids[i] >= 0) slots.at(routing.ids[i]).push_back(int64_t(i));
  return slots;
}

int64_t experts_covered(const Routing& routing) {
  std::set<int32_t> seen(routing.ids.begin(), routing.ids.end());
  seen.erase(-1);
  return int64_t(seen.size());
}

}  // namespace mxfp4
