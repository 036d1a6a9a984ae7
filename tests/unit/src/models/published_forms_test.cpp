// Forms in which engines load published models, beyond what synth writes: each lacks nothing, and a loss is found.
#include <catch2/catch.hpp>

#include "tests/support/structures.h"

using namespace mxfp4;

namespace {

using TensorNames = std::vector<std::string>;

/// "{0-3}" in names is each of these numbers.
Checkpoint with_more(Checkpoint ck, const TensorNames& prefixes, const TensorNames& names, Dtype dtype = Dtype::BF16) {
  for (const std::string& prefix : prefixes)
    for (const std::string& name : names) {
      TensorNames all;
      expand(prefix + name, all);
      for (const std::string& n : all)
        if (!ck.find(n)) {
          ck.tensors.push_back({n, dtype, {}, 0, 0, 0});
          std::sort(ck.tensors.begin(), ck.tensors.end(),
                    [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
        }
    }
  return ck;
}

Checkpoint with_other_name(Checkpoint ck, const std::string& old, const std::string& name) {
  std::vector<Tensor> tensors = ck.tensors;
  for (Tensor& t : tensors)
    if (const size_t at = t.name.find(old); at != t.name.npos) t.name.replace(at, old.size(), name);
  return with_tensors(ck.config, std::move(tensors));
}

std::string said_of(const Checkpoint& ck) { return text_of(find_lacks(ck)); }

const TensorNames latent_attention = {
    "q_a_proj.weight",       "q_a_layernorm.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight",
    "kv_a_layernorm.weight", "kv_b_proj.weight",     "o_proj.weight"};
const TensorNames plain_attention = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"};
/// The first three of four layers choose tokens, the last takes their choice.
Checkpoint glm_with_indexer() {
  Checkpoint ck = synthetic("glm-5.1-quark", 4);
  ck.config["indexer_types"] = {"full", "full", "full", "shared"};
  std::erase_if(ck.tensors, [](const Tensor& t) { return t.name.find(".3.self_attn.indexer.") != t.name.npos; });
  return ck;
}

/// vLLM 0.33.0 mimo_v2_mtp.py
Checkpoint mimo_with_mtp() {
  Checkpoint ck = synthetic("mimo-v2.6-flash", 4);
  ck =
      with_more(ck, {"model.mtp.layers.{0-2}."},
                {"enorm.weight", "hnorm.weight", "eh_proj.weight", "input_layernorm.weight", "pre_mlp_layernorm.weight",
                 "final_layernorm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"});
  return with_more(ck, {"model.mtp.layers.{0-2}.self_attn.", "model.layers.{0-3}.self_attn."}, plain_attention);
}

/// vLLM 0.33.0 longcat_flash_mtp.py
Checkpoint longcat_with_mtp() {
  Checkpoint ck = with_more(synthetic("longcat-flash-ct", 4), {"model.mtp.layers.0."},
                            {"eh_proj.weight", "enorm.m.weight", "hnorm.m.weight", "input_layernorm.weight",
                             "post_attention_layernorm.weight"});
  ck = with_more(ck, {"model.mtp.layers.0.transformer_layer.mlp."},
                 {"gate_proj.weight", "up_proj.weight", "down_proj.weight"});
  return with_more(ck, {"model.mtp.layers.0.self_attn."}, latent_attention);
}

/// Qwen3.5: the experts of multi-token prediction are in BF16, all in one tensor.
Checkpoint qwen_with_mtp() {
  Checkpoint ck = with_more(
      synthetic("qwen3.5-397b-a17b-quark", 4), {"mtp.layers.0."},
      {"input_layernorm.weight", "post_attention_layernorm.weight", "mlp.gate.weight", "mlp.shared_expert_gate.weight",
       "mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight", "mlp.shared_expert.down_proj.weight",
       "mlp.experts.gate_up_proj", "mlp.experts.down_proj"});
  ck = with_more(ck, {"mtp.layers.0.self_attn."}, plain_attention);
  ck = with_more(ck, {"mtp."},
                 {"fc.weight", "norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight"});
  return with_more(ck, {"mtp.layers.0.self_attn."}, {"q_norm.weight", "k_norm.weight"});
}

/// vLLM 0.33.0 minimax_m3/nvidia/model.py: sparse_attention_freq counts the layers with an index.
Checkpoint minimax_with_index() {
  Checkpoint ck =
      with_more(synthetic("minimax-m3-quark", 5), {"language_model.model.layers.{0-4}.self_attn."},
                {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "q_norm.weight", "k_norm.weight"});
  ck.config["text_config"]["sparse_attention_config"] = {{"sparse_attention_freq", {0, 1, 0, 1, 0}}};
  return with_more(ck, {"language_model.model.layers.{1,3}.self_attn."},
                   {"index_q_proj.weight", "index_k_proj.weight", "index_q_norm.weight", "index_k_norm.weight"});
}

const std::string mtp_lacks = " missing in a layer of multi-token prediction; all main layers have it\n";

}  // namespace

TEST_CASE("DeepSeek's sparse attention has an indexer without q_norm, and not in every layer") {
  CHECK(said_of(glm_with_indexer()) == "");
  CHECK(without(glm_with_indexer(), {"layers.1.self_attn.indexer.wk."}) ==
        "model.layers.1.self_attn.indexer.wk: missing, 1 tensor in 1 layer; 2 layers of the same kind have it\n");
  CHECK(without(glm_with_indexer(), {"layers.1.self_attn.indexer.k_norm."}) ==
        "model.layers.1.self_attn.indexer.k_norm: missing, 2 tensors in 1 layer; 2 layers of the same kind have it\n");
  CHECK(without(synthetic("qwen3-30b-a3b-ct", 10), {".self_attn.k_norm."}) ==
        "model.layers.*.self_attn.k_norm: missing in every layer that has model.layers.*.self_attn.q_norm\n");
}

TEST_CASE("the first and the last stage of a DSpark drafter have parts of their own") {
  const Checkpoint v4 = synthetic("deepseek-v4-flash-0731", 4), v41 = synthetic("deepseek-v4.1-flash", 4);
  CHECK(without(v4, {"mtp.1.attn.q_norm."}) ==
        "mtp.1.attn.q_norm: missing, 1 tensor in 1 layer; 2 layers of the same kind have it\n");
  CHECK(without(v4, {"mtp.2.attn.q_norm."}) ==
        "mtp.2.attn.q_norm: missing, 1 tensor in 1 layer; 2 layers of the same kind have it\n");
  CHECK(without(v4, {"mtp.1.attn.q_norm.", "mtp.2.attn.q_norm."}) ==
        "mtp.1.attn.q_norm:" + mtp_lacks + "mtp.2.attn.q_norm:" + mtp_lacks);
  CHECK(without(v4, {"mtp.0.main_norm."}) ==
        "mtp.0.main_norm: missing in 1 of 1 layer; all layers of deepseek_v4 have it\n");
  CHECK(without(v4, {"mtp.2.hc_head_base"}) ==
        "mtp.2.hc_head_base: missing in 1 of 1 layer; all layers of deepseek_v4 have it\n");
  CHECK(without(v4, {"mtp.2.markov_head", "mtp.2.confidence_head", "mtp.2.norm", "mtp.2.hc_head"}) ==
        "mtp.2.markov_head: missing; mtp.0 has main_proj, so the last stage has a head\n");
  CHECK(without(v4, {"mtp.0.main_"}) == "mtp.0.main_proj: missing; mtp.2 has markov_head, so the first stage has it\n");
  CHECK(without(v41, {"mtp.2.norm."}) == "mtp.2.norm: missing in 1 of 1 layer; all layers of deepseek_v41 have it\n");
}

TEST_CASE("DeepSeek-V4.1 joins the streams of hyper-connections without tensors") {
  const TensorNames streams = {"attn_fn", "attn_base", "attn_scale", "ffn_fn", "ffn_base", "ffn_scale"};
  const TensorNames attention = {"wq_a.weight", "wq_b.weight",   "wkv.weight",     "wo_a.weight",
                                 "wo_b.weight", "q_norm.weight", "kv_norm.weight", "attn_sink"};
  Checkpoint ck = with_more(synthetic("deepseek-v4.1-flash", 4), {"layers.{0-3}.hc_", "mtp.{0-2}.hc_"}, streams);
  ck = with_more(ck, {"layers.{0-3}.attn.", "mtp.{0-2}.attn."}, attention);
  ck = with_more(ck, {"layers.{0-3}.ffn.shared_experts.", "mtp.{0-2}.ffn.shared_experts."},
                 {"w1.weight", "w2.weight", "w3.weight"});
  CHECK(said_of(ck) == "");
}

TEST_CASE("norms of multi-token prediction have other names or other numbers") {
  CHECK(said_of(mimo_with_mtp()) == "");
  CHECK(without(mimo_with_mtp(), {"mtp.layers.1.pre_mlp_layernorm."}) ==
        "model.mtp.layers.1.pre_mlp_layernorm: missing, 1 tensor in 1 layer; 2 layers of the same kind have it\n");
  CHECK(without(mimo_with_mtp(), {"mtp.layers.0.pre_mlp_layernorm.", "mtp.layers.1.pre_mlp_layernorm.",
                                  "mtp.layers.2.pre_mlp_layernorm."})
            .starts_with("model.mtp.layers.0.post_attention_layernorm:" + mtp_lacks));
  CHECK(said_of(longcat_with_mtp()) == "");
  CHECK(without(longcat_with_mtp(), {"mtp.layers.0.input_layernorm."})
            .starts_with("model.mtp.layers.0.input_layernorm.0 .. input_layernorm.1 (2 such):" + mtp_lacks));
}

TEST_CASE("experts of multi-token prediction are in one tensor, those of main layers are not") {
  CHECK(said_of(qwen_with_mtp()) == "");
  CHECK(without(qwen_with_mtp(), {"mtp.fc."}) == "mtp.fc: missing beside mtp.layers\n");
  CHECK(without(qwen_with_mtp(), {"mtp.layers.0.mlp.experts.down_proj"}) ==
        "mtp.layers.0.*.experts.down_proj: missing in 1 of 1 layer; no layer has *experts.gate_up_proj without it\n");
}

TEST_CASE("the first layer with experts is in BF16, and scales have several spellings") {
  const Checkpoint inkling = synthetic("inkling-quark", 5);
  const std::pair<const char*, const char*> spellings[] = {{"_weight.scale", "_weight.scale"},
                                                           {"_weight.scale", "_weight_scale"},
                                                           {"_weight.scale", "_weight.weight_scale"}};
  for (const auto& [old, name] : spellings) {
    Checkpoint ck = with_other_name(inkling, old, name);
    if (std::string_view(name).ends_with(".weight_scale"))  // AutoRound's codes are within a module, too
      for (Tensor& t : ck.tensors)
        if (t.dtype == Dtype::U8 && t.name.ends_with("_weight")) t.name += ".weight_packed";
    ck = with_tensors(ck.config, ck.tensors);
    INFO(name);
    CHECK(said_of(ck) == "");
    CHECK(without(ck, {"layers.3.mlp.experts.w2_weight"}) != "");
    if (std::string_view(name) == "_weight_scale")
      CHECK(without(ck, {"layers.3.mlp.experts.w2_weight_scale"}) ==
            "model.llm.layers.3.mlp.experts.w2_weight_scale: missing, 1 tensor in 1 layer; 1 layer of the same kind "
            "has it\n");
  }
}

TEST_CASE("a list of the config that is about attention tells layers with an index from others") {
  CHECK(said_of(minimax_with_index()) == "");
  CHECK(without(minimax_with_index(), {"layers.1.self_attn.index_k_norm."}) ==
        "language_model.model.layers.1.self_attn.index_k_norm: missing, 1 tensor in 1 layer; 1 layer of the same kind "
        "has it\n");
}

TEST_CASE("what most layers of a kind lack is a warning, if no key of the config says why") {
  const auto problems_of = [](const char* layers, Problems& problems) {
    const std::string some = std::string("model.layers.{") + layers + "}.self_attn.";
    return check_complete(with_more(synthetic("qwen3-30b-a3b-ct", 10), {some}, {"temperature.weight"}), false,
                          problems);
  };
  Problems few, most;
  CHECK_FALSE(problems_of("1,3,6", few));
  CHECK_FALSE(few.any());
  CHECK(few.warnings() ==
        TensorNames{"model.layers.0, 2, 4-5, 7-9.self_attn.temperature: missing, 1 tensor in each of 7 "
                    "layers; 3 layers of the same kind have it"});
  CHECK(problems_of("0-6", most));
  CHECK(most.errors().front() ==
        "model.layers.7-9.self_attn.temperature: missing, 1 tensor in each of 3 layers; 7 "
        "layers of the same kind have it");
}
