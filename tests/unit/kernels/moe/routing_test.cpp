#include "kernels/moe/routing.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

using namespace mxfp4;

namespace {

double weight_sum(const Routing& r, int64_t token) {
  return std::accumulate(r.weights.begin() + token * r.top_k, r.weights.begin() + (token + 1) * r.top_k, 0.0);
}

}  // namespace

TEST_CASE("softmax routing is softmax over the chosen logits") {
  RouterRule rule;
  rule.experts = 4;
  rule.top_k = 2;
  const float logits[] = {0, 2, 1, -1};
  const Routing r = route(rule, logits);
  CHECK(r.ids == std::vector<int32_t>{1, 2});
  CHECK(r.weights[0] == Approx(std::exp(1) / (std::exp(1) + 1)));
  CHECK(weight_sum(r, 0) == Approx(1));
}

TEST_CASE("the bias chooses experts and does not weigh them; the routed scaling factor joins once") {
  RouterRule rule;
  rule.experts = 3;
  rule.top_k = 2;
  rule.scaling = 1.5;
  rule.bias = {0, 0, 10};
  const float logits[] = {1, 0, -2};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto root = [](double x) { return std::sqrt(std::log1p(std::exp(x))); };
  rule.scoring = Scoring::sigmoid;
  Routing r = route(rule, logits);
  CHECK(r.ids == std::vector<int32_t>{2, 0});
  CHECK(r.weights[0] == Approx(1.5 * sigmoid(-2) / (sigmoid(-2) + sigmoid(1))));
  CHECK(weight_sum(r, 0) == Approx(1.5));
  rule.scoring = Scoring::sqrt_softplus;
  r = route(rule, logits);
  CHECK(r.ids == std::vector<int32_t>{2, 0});
  CHECK(r.weights[1] == Approx(1.5 * root(1) / (root(-2) + root(1))));
  rule.renormalise = false;
  CHECK(route(rule, logits).weights[1] == Approx(1.5 * root(1)));
}

TEST_CASE("equal scores choose the lower expert") {
  RouterRule rule;
  rule.experts = 5;
  rule.top_k = 3;
  const std::vector<float> logits(5, 1.0f);
  CHECK(route(rule, logits).ids == std::vector<int32_t>{0, 1, 2});
}

TEST_CASE("forced routing covers every expert, none twice for one token") {
  RouterRule rule;
  rule.experts = 33;
  rule.top_k = 6;
  rule.scoring = Scoring::sigmoid;
  rule.scaling = 2;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Routing r = route_to_every_expert(rule, 6, seed);
    CHECK(experts_covered(r) == 33);
    for (int64_t t = 0; t < r.tokens; ++t) {
      CHECK(std::set<int32_t>(r.ids.begin() + 6 * t, r.ids.begin() + 6 * t + 6).size() == 6);
      CHECK(weight_sum(r, t) == Approx(2));
    }
    CHECK(route_to_every_expert(rule, 6, seed).ids == r.ids);
  }
  CHECK(route_to_every_expert(rule, 6, 1).ids != route_to_every_expert(rule, 6, 2).ids);
}

TEST_CASE("a rule that cannot choose is refused") {
  RouterRule rule;
  rule.experts = 2;
  rule.top_k = 3;
  CHECK_THROWS_AS(route_random(rule, 1, 0), std::invalid_argument);
}
