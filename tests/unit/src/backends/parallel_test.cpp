// Advised tensor-parallel sizes, and advice for serving a set on several GPUs.
#include "src/backends/parallel.h"

#include <catch2/catch.hpp>

#include "src/backends/gpu.h"
#include "src/backends/serve.h"

using namespace mxfp4;

namespace {

constexpr int64_t gb = 1'000'000'000;

Model gpt_oss() {
  Model m;
  m.family = "gpt-oss", m.pairs = true;
  m.layers.resize(1);
  m.layers[0].hidden = m.layers[0].intermediate = 2880;
  m.layers[0].experts.resize(128);
  m.attention = {64, 8};
  return m;
}

Model deepseek() {
  Model m;
  m.family = "deepseek-v4";
  m.layers.resize(1);
  m.layers[0].hidden = 4096, m.layers[0].intermediate = 2048;
  m.layers[0].experts.resize(256);
  m.attention = {64, 1};
  return m;
}

std::string served(const Model& m, const char* engine, int tp_size, Load load) {
  const Backend& b = find_backend("marlin", engine, "", &m);
  return serve_command({.backend = b, .model = m, .release = "", .tp_size = tp_size, .load = load}, "out");
}

}  // namespace

TEST_CASE("sizes that are advised divide heads and whole groups") {
  CHECK(tp_sizes(gpt_oss()) == std::vector<int>{1, 2, 4, 8});  // with 16 ranks, the last would have none of 90 groups
  CHECK(tp_sizes(deepseek()) == std::vector<int>{1, 2, 4, 8, 16, 32, 64});
  CHECK(heads_divide(gpt_oss(), 16));  // two ranks share a key-value head
  for (const int size : {3, 5, 6, 7, 12}) CHECK_FALSE(heads_divide(gpt_oss(), size));
  Model m = gpt_oss();
  m.attention = {48, 8};
  CHECK(heads_divide(m, 8));
  CHECK_FALSE(heads_divide(m, 12));  // 12 ranks cannot share 8 heads equally
  m.attention = {64, 1};
  CHECK_FALSE(heads_divide(m, 7));
  CHECK(heads_divide(m, 16));
  m.attention = {};
  CHECK(heads_divide(m, 7));  // the config has no number of heads
}

TEST_CASE("the memory of a GPU by its name and by its architecture") {
  CHECK(memory_of("H100") == 80 * gb);
  CHECK(memory_of("h200") == 141 * gb);
  CHECK(memory_of("sm90") == 80 * gb);
  CHECK(memory_of("sm100") == 180 * gb);
  CHECK(memory_of("sm75") == 16 * gb);
  CHECK(memory_of("sm89") == 48 * gb);
  CHECK(memory_of("") == 80 * gb);
  CHECK(memory_of("cpu") == 0);
  for (const std::string& name : architectures()) CHECK((memory_of(name) >= 16 * gb || name == "cpu"));
}

TEST_CASE("as many GPUs as hold the weights") {
  const Model m = deepseek();
  const Backend& b = find_backend("marlin", "vllm", "", &m);
  CHECK(gpus_needed(b, m, {160 * gb, 80 * gb}) == 4);  // 3 do not divide 64 heads
  CHECK(gpus_needed(b, m, {160 * gb, 288 * gb}) == 1);
  CHECK(gpus_needed(b, m, {73 * gb, 80 * gb}) == 2);
  CHECK(gpus_needed(b, m, {72 * gb, 80 * gb}) == 1);
  CHECK(gpus_needed(b, m, {160 * gb, 0}) == 1);
  CHECK(gpus_needed(b, m, {100'000 * gb, 80 * gb}) == 0);
  CHECK(expert_parallel_gpus(m, {160 * gb, 80 * gb}) == 4);
}

TEST_CASE("SGLang's Marlin takes no ranks with a part of a group") {
  const Model m = gpt_oss();
  const Backend &vllm = find_backend("marlin", "vllm", "", &m), &sglang = find_backend("marlin", "sglang", "", &m);
  for (const int size : {1, 2, 3, 5}) CHECK(share_refusal(sglang, m.layers[0], size).empty());
  CHECK(share_refusal(sglang, m.layers[0], 4) ==
        "intermediate 2880 is 720 rows on each of 4 ranks, a multiple of 32 is needed");
  CHECK(share_refusal(vllm, m.layers[0], 4).empty());
  CHECK(gpus_needed(vllm, m, {160 * gb, 80 * gb}) == 4);
  CHECK(gpus_needed(sglang, m, {160 * gb, 80 * gb}) == 0);
}

TEST_CASE("a set is served as its engine starts, or not at all") {
  const Load small = {10 * gb, 80 * gb}, large = {160 * gb, 80 * gb};
  CHECK(served(deepseek(), "vllm", 1, small) == "vllm serve out");
  CHECK(served(deepseek(), "vllm", 4, large) == "vllm serve out --tensor-parallel-size 4");
  CHECK(served(deepseek(), "vllm", 1, large) == "vllm serve out --tensor-parallel-size 4 --enable-expert-parallel");
  CHECK(served(deepseek(), "sglang", 1, large) == "sglang serve out --tensor-parallel-size 4 --ep-size 4");
  CHECK(served(gpt_oss(), "vllm", 7, small).empty());
}

TEST_CASE("what engines do not load is not served") {
  const Load load = {10 * gb, 80 * gb};
  Model m = deepseek();
  m.layers[0].module = "base_model.model.model.layers.0.mlp.experts";
  CHECK(why_not_loaded(m).find("names of PEFT") != std::string::npos);
  CHECK(served(m, "vllm", 1, load).empty());
  m = deepseek();
  m.layers.push_back(m.layers[0]);
  CHECK(why_not_loaded(m).empty());
  m.layers[1].experts.resize(128);
  CHECK(why_not_loaded(m).find("128 experts") != std::string::npos);
  CHECK(served(m, "vllm", 1, load).empty());
  m.layers[1] = m.layers[0];
  m.layers[1].intermediate = 1024;
  CHECK(served(m, "sglang", 1, load).empty());
  m.layers[1].kind = LayerKind::mtp;  // only the model's own layers may be pruned
  CHECK(why_not_loaded(m).empty());
  CHECK(served(m, "sglang", 1, load) == "sglang serve out");
}

TEST_CASE("settings that the loader sets are not required of the user") {
  const Model m = gpt_oss();
  const Backend& b = find_backend("marlin", "vllm", "", &m);
  CHECK(describe_who_sets(b, m, true) ==
        "the loader sets moe_backend marlin; it requires VLLM_MARLIN_INPUT_DTYPE unset");
  CHECK(describe_who_sets(b, m, false) == "it requires moe_backend marlin, VLLM_MARLIN_INPUT_DTYPE unset");
}
