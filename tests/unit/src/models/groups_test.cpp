// Groups of tensors that are missing in every layer, so that no layer shows the loss.
#include <catch2/catch.hpp>
#include <functional>

#include "src/models/model.h"
#include "tests/support/structures.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

using Group = std::function<bool(const std::string& name)>;

bool is_shared_expert(const std::string& name) { return contains_any(name, {"shared_expert", "shared_mlp"}); }
bool is_attention(const std::string& name) {
  return contains_any(name, {"attn.", "attention.", "mixer.", "mamba."}) && !contains_any(name, {"vis", "sam_model"});
}
bool is_layer_norm(const std::string& name) {
  return contains_any(name, {"norm", "ln_"}) && !is_attention(name) && !contains_any(name, {"vis", "sam_model"});
}

/// The checkpoint without a group of tensors in its layers. Tensors outside layers stay.
Checkpoint without_group(Checkpoint ck, const Group& group) {
  std::erase_if(ck.tensors, [&](const Tensor& t) { return is_in_layer(t.name) && group(t.name); });
  return ck;
}

struct Whole {
  std::string name;
  Checkpoint checkpoint;
};

std::vector<Whole> synthetic_models() {
  std::vector<Whole> out;
  for (const SynthModel& model : synth_models()) out.push_back({std::string(model.name), synthetic(model.name, 10)});
  return out;
}

/// Published mixture-of-experts models.
std::vector<Whole> published_models() {
  std::vector<Whole> out;
  for (const char* name :
       {"aria",          "dbrx",          "deepseek-ocr", "deepseek_v2",      "deepseek_v3",       "ernie4_5_moe",
        "glm-4.6",       "glm4_moe",      "granitemoe",   "granitemoehybrid", "granitemoeshared",  "jamba",
        "llama4_text",   "longcat_flash", "minimax",      "minimax-m1-80k",   "mistral4-mlx-4bit", "mixtral",
        "mixtral-8x22b", "olmoe",         "phimoe",       "qwen2_moe",        "qwen3-vl-30b-a3b",  "qwen3.5-moe-reap",
        "qwen3_moe",     "qwen3_next"})
    out.push_back({name, published(testdata() + "/published/" + name + ".json")});
  return out;
}

/// The number of models without the group; each must report it.
int64_t miss(const std::vector<Whole>& models, const char* what, const Group& group) {
  int64_t missed = 0;
  for (const Whole& model : models) {
    const Checkpoint less = without_group(model.checkpoint, group);
    if (less.tensors.size() == model.checkpoint.tensors.size()) continue;
    INFO(model.name << " without " << what);
    const std::vector<Lack> whole = find_lacks(model.checkpoint), lacks = find_lacks(less);
    Problems refused;
    recognise(less, {}, refused);  // which names a missing router
    CHECK((lacks.size() > whole.size() || refused.any()));
    ++missed;
  }
  return missed;
}

}  // namespace

TEST_CASE("a group that is gone from every layer of a model of synth is named") {
  const std::vector<Whole> models = synthetic_models();
  CHECK(miss(models, "shared experts", is_shared_expert) >= 10);
  CHECK(miss(models, "norms", is_layer_norm) == int64_t(models.size()));
  CHECK(miss(models, "attention", is_attention) >= 5);
  CHECK(miss(models, "routers", [](const std::string& n) {
          return contains_any(n, {".gate.", ".router."});
        }) == int64_t(models.size()));
}

TEST_CASE("a group that is gone from every layer of a published mixture is named", "[long]") {
  const std::vector<Whole> models = published_models();
  CHECK(miss(models, "shared experts", is_shared_expert) >= 13);
  CHECK(miss(models, "norms", is_layer_norm) == int64_t(models.size()));
  CHECK(miss(models, "attention", is_attention) == int64_t(models.size()));
}

TEST_CASE(
    "block scales that are gone from every FP8 matrix are named, if the config says that the model is quantized") {
  for (const char* model : {"mimo-v2.6-flash", "ling"}) {
    INFO(model);
    Checkpoint ck = without_group(synthetic(model, 10), [](const std::string& name) {
      return name.find(".experts.") == name.npos && contains_any(name, {"scale"});
    });
    CHECK(text_of(find_lacks(ck)).find("F8_E4M3 without scales") != std::string::npos);
    for (const char* key : {"quantization_config", "text_config"}) ck.config.erase(key);
    CHECK(text_of(find_lacks(ck)) == "");
  }
}

TEST_CASE("gate matrices that no module has are named, whatever the activation is called") {
  for (const char* model : {"kimi-k3", "minimax-m3-quark"}) {
    INFO(model);
    const Checkpoint ck = without_group(synthetic(model, 10), [](const std::string& name) {
      return name.find(".experts.") == name.npos && contains_any(name, {"gate_proj."});
    });
    CHECK(text_of(find_lacks(ck)).find("gate_proj") != std::string::npos);
  }
}
