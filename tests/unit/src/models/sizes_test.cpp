// Sizes and counts of experts that differ from the config's.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/structures.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

/// What is said if every tensor whose name contains `part` has this shape; 0 keeps a dimension.
std::string with_shape(Checkpoint ck, const std::string& part, const std::vector<int64_t>& shape) {
  int64_t changed = 0;
  for (Tensor& t : ck.tensors)
    if (t.name.find(part) != t.name.npos && t.shape.size() == shape.size()) {
      for (size_t i = 0; i < shape.size(); ++i)
        if (shape[i] > 0) t.shape[i] = shape[i];
      ++changed;
    }
  return changed ? text_of(find_lacks(ck)) : "nothing was changed";
}

}  // namespace

TEST_CASE("experts that the config counts are missing at the end of layers that nothing packs") {
  struct Loss {
    const char* model;
    std::vector<std::string> names;
    const char* said;
  };
  const std::string published_deepseek = testdata() + "/published/deepseek_v3.json";
  const Loss losses[] = {
      {"deepseek-v4.1-flash",
       {"mtp.0.ffn.experts.3.", "mtp.2.ffn.experts.3."},
       "mtp.0, 2.ffn.experts.3: 1 expert missing in each of 2 layers; config.json says dspark_n_routed_experts = 4\n"},
      {"deepseek-v4.1-flash",
       {"mtp.1.ffn.experts.1.", "mtp.1.ffn.experts.2.", "mtp.1.ffn.experts.3."},
       "mtp.1.ffn.experts.1-3: 3 experts missing; config.json says dspark_n_routed_experts = 4\n"},
      {"deepseek-v4-flash",
       {"mtp.0.ffn.experts.3."},
       "mtp.0.ffn.experts.3: 1 expert missing; config.json says n_routed_experts = 4\n"},
  };
  for (const Loss& l : losses) {
    INFO(l.model << " without " << l.names.front());
    CHECK(without(synthetic(l.model, 4), l.names) == l.said);
  }
  const Checkpoint deepseek = published(published_deepseek);
  CHECK(without(deepseek, {".layers.60.mlp.experts.255."}) ==
        "model.layers.60.mlp.experts.255: 1 expert missing; config.json says n_routed_experts = 256\n");
  std::vector<std::string> most;
  for (int e = 2; e < 255; ++e) most.push_back(".layers.60.mlp.experts." + std::to_string(e) + ".");
  CHECK(without(deepseek, most) ==
        "model.layers.60.mlp.experts.2-254: 253 experts missing; config.json says n_routed_experts = 256\n");
}

TEST_CASE("a key that counts the experts of multi-token prediction alone counts pruned ones") {
  Checkpoint ck = synthetic("deepseek-v4.1-flash", 4);
  for (Tensor& t : ck.tensors)
    if (t.name.starts_with("mtp.") && t.name.find(".gate.") != t.name.npos) t.shape[0] = 3;
  CHECK(without(ck, {"mtp.0.ffn.experts.3.", "mtp.1.ffn.experts.3.", "mtp.2.ffn.experts.3."}) ==
        "mtp.0-2.ffn.experts.3: 1 expert missing in each of 3 layers; config.json says dspark_n_routed_experts = 4\n");
}

TEST_CASE("a pruned layer has as many experts as its router has rows") {
  Checkpoint ck = synthetic("deepseek-v4-flash", 4);
  for (Tensor& t : ck.tensors)
    if (t.name.starts_with("mtp.0.ffn.gate.")) t.shape[0] = 3;
  CHECK(without(ck, {"mtp.0.ffn.experts.3."}) == "");
}

TEST_CASE("embedding, head and norms have the config's sizes") {
  const Checkpoint ck = synthetic("gpt-oss-20b", 4);
  const std::string file = "ckpt.safetensors: ";
  CHECK(with_shape(ck, "embed_tokens.weight", {201216, 0}) == "");
  CHECK(with_shape(ck, "embed_tokens.weight", {0, 2048}) ==
        file + "model.embed_tokens.weight: 2048 columns; config.json says hidden_size = 2880\n");
  CHECK(with_shape(ck, "model.norm.weight", {2879}) ==
        file + "model.norm.weight: 2879 numbers; config.json says hidden_size = 2880\n");
  CHECK(with_shape(ck, "input_layernorm.weight", {1440}) ==
        "model.layers.0.input_layernorm.weight: 1440 numbers, and 3 more up to "
        "model.layers.3.input_layernorm.weight; config.json says hidden_size = 2880\n");
}

TEST_CASE("experts that pass through have one size, and no fewer rows than the config says") {
  Checkpoint ck = synthetic("qwen3-30b-a3b-ct", 4);
  std::erase_if(ck.tensors, [](const Tensor& t) { return t.name.ends_with("weight_scale"); });
  for (Tensor& t : ck.tensors)
    if (t.name.find(".experts.") != t.name.npos) {
      t.dtype = Dtype::BF16;
      t.name.replace(t.name.find("weight_packed"), 13, "weight");
    }
  CHECK(text_of(find_lacks(ck)) == "");
  CHECK(with_shape(ck, ".2.mlp.experts.1.up_proj.weight", {512, 0}) ==
        "model.layers.2.mlp.experts.1.up_proj.weight: BF16 [512, 1024], model.layers.2.mlp.experts.0.up_proj.weight "
        "has BF16 [768, 1024]\n");
  CHECK(with_shape(ck, ".up_proj.weight", {512, 0}) ==
        "model.layers.0.mlp.experts.0.up_proj.weight: 512 rows, and 3 more up to "
        "model.layers.3.mlp.experts.0.up_proj.weight; config.json says moe_intermediate_size = 768\n");
}
