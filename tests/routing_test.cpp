#include "kernels/routing.h"

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
  Router router;
  router.experts = 4, router.top_k = 2;
  const float logits[] = {0, 2, 1, -1};
  const Routing r = route(router, logits);
  CHECK(r.ids == std::vector<int32_t>{1, 2});
  CHECK(r.weights[0] == Approx(std::exp(1) / (std::exp(1) + 1)));
  CHECK(weight_sum(r, 0) == Approx(1));
}

TEST_CASE("the bias chooses experts and does not weigh them; the routed scaling factor joins once") {
  Router router;
  router.experts = 3, router.top_k = 2, router.scaling = 1.5;
  router.bias = {0, 0, 10};
  const float logits[] = {1, 0, -2};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto root = [](double x) { return std::sqrt(std::log1p(std::exp(x))); };
  router.scoring = Scoring::sigmoid;
  Routing r = route(router, logits);
  CHECK(r.ids == std::vector<int32_t>{2, 0});
  CHECK(r.weights[0] == Approx(1.5 * sigmoid(-2) / (sigmoid(-2) + sigmoid(1))));
  CHECK(weight_sum(r, 0) == Approx(1.5));
  router.scoring = Scoring::sqrt_softplus;
  r = route(router, logits);
  CHECK(r.ids == std::vector<int32_t>{2, 0});
  CHECK(r.weights[1] == Approx(1.5 * root(1) / (root(-2) + root(1))));
  router.renormalise = false;
  CHECK(route(router, logits).weights[1] == Approx(1.5 * root(1)));
}

TEST_CASE("equal scores choose the lower expert") {
  Router router;
  router.experts = 5, router.top_k = 3;
  const std::vector<float> logits(5, 1.0f);
  CHECK(route(router, logits).ids == std::vector<int32_t>{0, 1, 2});
}

TEST_CASE("forced routing covers every expert, none twice for one token") {
  Router router;
  router.experts = 33, router.top_k = 6, router.scoring = Scoring::sigmoid, router.scaling = 2;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Routing r = route_to_every_expert(router, 6, seed);
    CHECK(experts_covered(r) == 33);
    for (int64_t t = 0; t < r.tokens; ++t) {
      CHECK(std::set<int32_t>(r.ids.begin() + 6 * t, r.ids.begin() + 6 * t + 6).size() == 6);
      CHECK(weight_sum(r, t) == Approx(2));
    }
    CHECK(route_to_every_expert(router, 6, seed).ids == r.ids);
  }
  CHECK(route_to_every_expert(router, 6, 1).ids != route_to_every_expert(router, 6, 2).ids);
}

TEST_CASE("an expert-parallel rank sees its own experts only") {
  Router router;
  router.experts = 8, router.top_k = 4;
  const Routing all = route_to_every_expert(router, 2, 3);
  int64_t slots = 0;
  for (int64_t first = 0; first < 8; first += 2) {
    const Routing local = local_routing(all, expert_map(8, first, 2));
    for (size_t i = 0; i < all.ids.size(); ++i) {
      const bool here = all.ids[i] / 2 * 2 == first;
      CHECK(local.ids[i] == (here ? all.ids[i] - first : -1));
      slots += here;
    }
    CHECK(experts_covered(local) == 2);
  }
  CHECK(slots == 8);
}

TEST_CASE("a router that cannot choose is refused") {
  Router router;
  router.experts = 2, router.top_k = 3;
  CHECK_THROWS_AS(route_random(router, 1, 0), std::invalid_argument);
}
