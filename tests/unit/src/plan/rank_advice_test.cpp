// The warnings about a set's tensor-parallel size before the set is written.
#include "src/plan/rank_advice.h"

#include <catch2/catch.hpp>

#include "src/plan/plan.h"

using namespace mxfp4;

TEST_CASE("a set whose ranks do not serve the model is said to be one") {
  constexpr int64_t gb = 1'000'000'000;
  Model m;
  m.family = "deepseek-v4";
  m.layers.resize(1);
  m.layers[0].hidden = 4096, m.layers[0].intermediate = 2048;
  m.attention = {64, 1};
  Checkpoint ck;
  ck.tensors.resize(2);
  ck.tensors[0].bytes = 150 * gb, ck.tensors[1].bytes = 10 * gb;
  Plan plan;
  plan.checkpoint = &ck, plan.model = &m, plan.backend = &find_backend("marlin", "vllm", "", &m);
  plan.gpu_bytes = 80 * gb;
  const auto at = [&](int size) -> const Plan& { return plan.tp_size = size, plan; };
  CHECK(weights_advice(at(1)) ==
        "160 GB of weights do not fit 1 GPU of 80 GB; this set serves tensor-parallel size 1 only: for 4 GPUs convert "
        "with --tp-size 4");
  CHECK(weights_advice(at(2)).find("do not fit 2 GPUs of 80 GB") != std::string::npos);
  CHECK(weights_advice(at(4)).empty());
  CHECK(heads_advice(at(4)).empty());
  CHECK(
      heads_advice(at(7)) ==
      "64 attention heads or 1 key-value heads do not divide by tensor-parallel size 7, so vllm needs data parallelism "
      "for this set; --tp-size 1, 2, 4, 8, 16, 32, 64 would do");
  plan.gpu_bytes = 0;
  CHECK(weights_advice(at(1)).empty());
}
