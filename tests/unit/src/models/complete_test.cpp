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

TEST_CASE("models of synth lack nothing, in their own and in small sizes, with any number of layers") {
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

TEST_CASE("what is taken from a whole checkpoint is named, with its layers and how many have it") {
  struct Loss {
    const char* model;
    std::vector<std::string> names;  // parts of the names of removed tensors
    const char* said;
  };
  const Loss losses[] = {
      {"gpt-oss-20b",
       {".layers.9."},
       "model.layers.9: the layer is missing; config.json says num_hidden_layers = 10\n"},
      {"gpt-oss-20b",
       {".layers.4.", ".layers.5."},
       "model.layers.4-5: 2 layers are missing; config.json says num_hidden_layers = 10\n"},
      {"deepseek-v4-flash", {"layers.9."}, "layers.9: the layer is missing; config.json says num_hidden_layers = 10\n"},
      {"kimi-k3",
       {"layers.0."},
       "language_model.model.layers.0: the layer is missing; config.json says num_hidden_layers = 10\n"},
      {"deepseek-v4-flash", {"mtp.0."}, "MTP: 1 of 1 layer missing; config.json says num_nextn_predict_layers = 1\n"},
      {"glm-5.2-quark", {"layers.10."}, "MTP: 1 of 1 layer missing; config.json says num_nextn_predict_layers = 1\n"},
      {"qwen3-30b-a3b-ct",
       {".3.self_attn.q_norm.", ".9.self_attn.q_norm."},
       "model.layers.3, 9.self_attn.q_norm: missing, 1 tensor in each of 2 layers; 8 layers of the same kind have "
       "it\n"},
      {"gpt-oss-20b",
       {".9.self_attn.sinks"},
       "model.layers.9.self_attn.sinks: missing, 1 tensor in 1 layer; 9 layers of the same kind have it\n"},
      {"kimi-k3",
       {".0.mlp.up_proj"},
       "language_model.model.layers.*.mlp.up_proj: missing in every layer that has "
       "language_model.model.layers.*.mlp.gate_proj\n"},
      {"deepseek-v4-flash",
       {"layers.7.attn.wo_b.weight"},
       "layers.7.attn.wo_b.weight: missing, 1 tensor in 1 layer; 9 layers of the same kind have it\n"},
      {"gpt-oss-20b",
       {"gate_up_proj_bias"},
       "model.layers.0-9.mlp.experts.gate_up_proj_bias: missing in 10 of 10 layers; all layers of a gpt_oss have it\n"},
      {"gpt-oss-20b", {"embed_tokens"}, "model.embed*: the embedding is missing\n"},
      {"kimi-k3",
       {"language_model.model.norm."},
       "language_model.model.norm: the norm behind the last layer is missing\n"},
      {"mimo-v2.6-flash",
       {"lm_head"},
       "lm_head: the output head is missing; config.json does not tie it to the embedding\n"},
      {"deepseek-v4-flash",
       {"gate.bias", "tid2eid"},
       "layers.0-2.ffn.gate.tid2eid: missing in 3 of 3 layers; config.json says num_hash_layers = 3\n"
       "layers.3-9.ffn.gate.bias: missing in 7 of 7 layers; config.json says num_hash_layers = 3\n"
       "mtp.0.ffn.gate.bias: missing in 1 of 1 layer; config.json says num_hash_layers = 3\n"},
  };
  for (const Loss& l : losses) {
    INFO(l.model << " without " << l.names.front());
    CHECK(without(synthetic(l.model, 10), l.names) == l.said);
  }
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
