// Messages about tensors that are removed from whole checkpoints: those that tests/cases/missing.py does not have.
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "src/models/model.h"
#include "tests/support/structures.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

struct Loss {
  const char* model;
  int64_t layers;
  std::vector<std::string> names;  // parts of the names of removed tensors
  const char* said;
};

const Loss losses[] = {
    {"deepseek-v4-flash",
     43,
     {"layers.20.attn.indexer."},
     "layers.20.attn.indexer.compressor .. attn.indexer.wq_b (6 such): missing, 7 tensors in 1 layer; 20 layers of the "
     "same kind have it\n"},
    {"gpt-oss-20b",
     10,
     {".self_attn.k_proj.weight"},
     "model.layers.0-9.self_attn.k_proj.weight: missing beside bias in each of 10 layers\n"},
    {"deepseek-v4-flash",
     10,
     {".attn.compressor."},
     "layers.2-9.attn.compressor.ape .. attn.compressor.wkv (4 such): missing in 8 of 8 layers; compress_ratios in "
     "config.json gives these layers one\n"},
    {"deepseek-v4-pro",
     10,
     {".ffn.shared_experts.w3."},
     "layers.0-9.ffn.shared_experts.w3: missing in 10 of 10 layers; all layers of deepseek_v4 have it\n"
     "mtp.0.ffn.shared_experts.w3: missing in 1 of 1 layer; all layers of deepseek_v4 have it\n"},
    {"kimi-k3",
     10,
     {".routed_expert_norm."},
     "language_model.model.layers.1-9.*.routed_expert_norm: missing in 9 of 9 layers; config.json says "
     "routed_expert_hidden_size = 3584\n"},
    {"granite-4.0-h-small-quark",
     10,
     {".mamba.A_log", ".shared_mlp.output_linear."},
     "model.layers.*.shared_mlp.output_linear: missing in every layer that has model.layers.*.shared_mlp.input_linear\n"
     "model.layers.0-4, 6-9.mamba.A_log: missing in 9 of 9 layers; all layers of granitemoehybrid have it\n"},
    {"inkling-quark",
     10,
     {".attn.wo_ud.", ".shared_w2_weight", ".llm.embed."},
     "model.llm.layers.0-9.attn.wo_ud: missing in 10 of 10 layers; all layers of inkling_model have it\n"
     "model.llm.layers.2-9.*.shared_w2_weight: missing in 8 of 8 layers; no layer has "
     "*shared_w13_weight|*shared_w2_weight without it\n"
     "model.llm.embed*: the embedding is missing\n"},
    {"qwen3-30b-a3b-ct",
     10,
     {".3.self_attn.q_norm.", ".9.self_attn.q_norm."},
     "model.layers.3, 9.self_attn.q_norm: missing, 1 tensor in each of 2 layers; 8 layers of the same kind have it\n"},
    {"deepseek-v4-flash",
     10,
     {"gate.bias", "tid2eid"},
     "layers.0-2.ffn.gate.tid2eid: missing in 3 of 3 layers; config.json says num_hash_layers = 3\n"
     "layers.3-9.ffn.gate.bias: missing in 7 of 7 layers; config.json says num_hash_layers = 3\n"
     "mtp.0.ffn.gate.bias: missing in 1 of 1 layer; config.json says num_hash_layers = 3\n"},
    {"qwen3-30b-a3b-ct",
     6,
     {".1.input_layernorm.", ".3.input_layernorm.", ".5.input_layernorm."},
     "model.layers.1, 3, 5.input_layernorm: missing, 1 tensor in each of 3 layers; 3 layers of the same kind have "
     "it\n"},
    {"deepseek-v4-flash",
     10,
     {".shared_experts.w1.scale", ".shared_experts.w2.scale", ".shared_experts.w3.scale"},
     "layers.0-9.ffn.shared_experts.w1: F8_E4M3 without scales in each of 10 layers\n"
     "layers.0-9.ffn.shared_experts.w2: F8_E4M3 without scales in each of 10 layers\n"
     "layers.0-9.ffn.shared_experts.w3: F8_E4M3 without scales in each of 10 layers\n"},
    {"qwen3-30b-a3b-ct",
     10,
     {".self_attn.o_proj.weight_scale"},
     "model.layers.0-9.self_attn.o_proj: U8 without scales in each of 10 layers\n"},
    {"deepseek-v4-flash",
     10,
     {"mtp.0.attn.q_norm."},
     "mtp.0.attn.q_norm: missing in a layer of multi-token prediction; all main layers have it\n"},
    {"deepseek-v4-flash",
     10,
     {"hc_head_fn"},
     "mtp.0.hc_head_fn: missing in 1 of 1 layer; all layers of deepseek_v4 have it\n"
     "hc_head_fn: missing, and layers have hyper-connections\n"},
    {"qwen3.5-397b-a17b-quark",
     10,
     {".layers.9.mlp.experts.2."},
     "model.language_model.layers.9.mlp.experts.2: missing; the layer's other experts have it\n"},
};

}  // namespace

TEST_CASE("losses are named, in one layer, in every layer and outside of layers") {
  for (const Loss& l : losses) {
    INFO(l.model << " without " << l.names.front());
    CHECK(without(synthetic(l.model, l.layers), l.names) == l.said);
  }
}

TEST_CASE("published models of other kinds without a part of one layer") {
  const std::pair<const char*, const char*> parts[] = {
      {"qwen3-vl-30b-a3b.json", "language_model.layers.47.self_attn.k_norm."},
      {"minimax-m1-80k.json", ".layers.79.block_sparse_moe.gate."},
      {"minimax-m1-80k.json", ".layers.40.self_attn.output_gate."},
      {"deepseek-ocr.json", ".layers.11.mlp.shared_experts.up_proj."},
      {"glm-4.6.json", ".layers.92.self_attn.o_proj."},
      {"glm-4.6.json", ".layers.50.mlp.gate.e_score_correction_bias"},
      {"jamba.json", ".layers.12.self_attn.o_proj."},
      {"bamba.json", ".layers.4.mamba.out_proj."},
      {"qwen3_next.json", ".layers.46.linear_attn.A_log"},
      {"llama4_text.json", ".layers.0.self_attn.k_proj."},
  };
  for (const auto& [file, part] : parts) {
    INFO(file << " without " << part);
    const std::string said = without(published(testdata() + "/published/" + file), {part});
    CHECK(said != "nothing was removed");
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  }
}

TEST_CASE("a tensor that every layer of a model lacks is named, but for two", "[long]") {
  const auto errors_of = [](const Checkpoint& ck) {
    Problems problems;
    recognise(ck, {}, problems);
    check_complete(ck, false, problems);
    return problems.errors();
  };
  std::vector<std::string> accepted;
  for (const SynthModel& model : synth_models()) {
    const Checkpoint whole = synthetic(model.name, 4, true);
    CHECK(errors_of(whole) == std::vector<std::string>{});
    std::map<std::string, std::set<std::string>> names;  // by pattern
    for (const Tensor& t : whole.tensors)
      names[std::regex_replace(t.name, std::regex("\\b[0-9]+\\."), "#.")].insert(t.name);
    for (const auto& [pattern, removed] : names) {
      Checkpoint ck = whole;
      std::erase_if(ck.tensors, [&, &removed = removed](const Tensor& t) { return removed.count(t.name) > 0; });
      if (errors_of(ck).empty()) accepted.push_back(std::string(model.name) + ": " + pattern);
    }
  }
  CHECK(accepted == std::vector<std::string>{"deepseek-v4.1-flash: mtp.#.confidence_head.proj.weight",
                                             "privacy-filter-mxfp4: score.bias"});
}
