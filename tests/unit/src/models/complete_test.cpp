// Complete checkpoints give no message; missing tensors are reported.
#include "src/models/complete.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/structures.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

TEST_CASE("published models of other families lack nothing") {
  int64_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testdata() + "/published")) {
    if (entry.path().extension() != ".json") continue;
    ++models;
    INFO(entry.path().filename().string());
    // These pruned and tuned models have no layer of multi-token prediction, although their configs count one.
    const std::string name = entry.path().filename().string();
    const bool has_no_mtp = name == "qwen3.5-moe-reap.json" || name == "qwen3.5-dense.json";
    CHECK(text_of(find_lacks(published(entry.path().string()))) ==
          (has_no_mtp ? "MTP: 1 of 1 layer missing; config.json says mtp_num_hidden_layers = 1\n" : ""));
  }
  CHECK(models >= 90);
}

TEST_CASE("models of synth lack nothing, in their own and in small sizes, with any number of layers", "[long]") {
  int64_t structures = 0;
  for (const SynthModel& model : synth_models())
    for (const bool tiny : {false, true})
      for (const int64_t layers : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 24, 40}) {
        INFO(std::string(model.name) << (tiny ? " --tiny" : "") << " --layers " << layers);
        try {
          CHECK(text_of(find_lacks(synthetic(model.name, layers, tiny))) == "");
          ++structures;
        } catch (const Error& e) {
          CHECK(e.kind == ErrorKind::usage);  // the model needs more layers
        }
      }
  CHECK(structures > 500);
}

TEST_CASE("static scales of some experts only are an error that names the first and the last without") {
  Checkpoint ck = synthetic("kimi-k2.5-quark", 3);
  std::vector<Tensor> scales;
  for (const Tensor& t : ck.tensors)
    if (t.name.ends_with(".down_proj.weight_scale") && t.name.find(".experts.3.") == t.name.npos) {
      scales.push_back(t);
      scales.back().name.replace(t.name.size() - 12, 12, "input_scale");
    }
  ck.tensors.insert(ck.tensors.end(), scales.begin(), scales.end());
  std::sort(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  CHECK(text_of(find_lacks(ck)) ==
        "language_model.model.layers.1.mlp.experts.3.down_proj.input_scale: missing, as are 1 more up to "
        "language_model.model.layers.2.mlp.experts.3.down_proj.input_scale; other experts have them\n");
}

TEST_CASE("published mixtures without their last layer, an expert's matrix or a router are named") {
  const Checkpoint ck = published(testdata() + "/published/mixtral-8x22b.json");
  CHECK(without(ck, {".layers.55."}) ==
        "model.layers.55: the layer is missing; config.json says num_hidden_layers = 56\n");
  CHECK(without(ck, {".layers.55.block_sparse_moe.experts.7.w2."}) ==
        "model.layers.55.block_sparse_moe.experts.7.w2.weight: missing; the layer's other experts have it\n");
  CHECK(without(ck, {".20.block_sparse_moe.gate."}) ==
        "model.layers.20.block_sparse_moe.gate: missing, 1 tensor in 1 layer; 55 layers of the same kind have it\n");
}

TEST_CASE("shared experts that the config counts are missing in all layers") {
  CHECK(without(published(testdata() + "/published/glm4_moe.json"), {".shared_experts."}) ==
        "model.layers.1-45.*.shared_expert: missing in 45 of 45 layers; config.json says n_shared_experts = 1\n");
}

TEST_CASE("a config that counts no layers promises none") {
  Checkpoint ck = synthetic("gpt-oss-20b", 4);
  ck.config.erase("num_hidden_layers");
  CHECK(without(ck, {".layers.3."}) == "");
}

TEST_CASE("what lacks is an error, or a warning if that is allowed") {
  Checkpoint ck = synthetic("gpt-oss-20b", 4);
  Problems none;
  CHECK_FALSE(check_complete(ck, false, none));
  CHECK_FALSE(none.any());
  std::erase_if(ck.tensors, [](const Tensor& t) { return t.name == "model.norm.weight"; });
  Problems refused, allowed;
  CHECK(check_complete(ck, false, refused));
  CHECK(refused.errors() ==
        std::vector<std::string>{"model.norm: the norm behind the last layer is missing",
                                 "ckpt: incomplete; fetch what is missing, or give --allow-incomplete to convert it"});
  CHECK(check_complete(ck, true, allowed));
  CHECK_FALSE(allowed.any());
  CHECK(allowed.warnings() == std::vector<std::string>{"model.norm: the norm behind the last layer is missing"});
}
