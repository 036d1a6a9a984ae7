// Whole checkpoints pass without a word; whatever is taken from one is named.
#include "src/models/complete.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <charconv>
#include <filesystem>

#include "src/base/file.h"
#include "src/synth/describe.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

/// "{0-3,7}" in a pattern: every number.
void expand(const std::string& pattern, std::vector<std::string>& out) {
  const size_t open = pattern.find('{');
  if (open == pattern.npos) return out.push_back(pattern);
  const size_t close = pattern.find('}', open);
  const char *at = pattern.data() + open + 1, *end = pattern.data() + close;
  while (at < end) {
    int64_t first = 0;
    at = std::from_chars(at, end, first).ptr;
    int64_t last = first;
    if (at < end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    for (int64_t n = first; n <= last; ++n)
      expand(pattern.substr(0, open) + std::to_string(n) + pattern.substr(close + 1), out);
    ++at;  // a comma
  }
}

Checkpoint with_tensors(Json config, const std::vector<std::pair<std::string, Dtype>>& tensors) {
  Checkpoint ck;
  ck.dir = "ckpt";
  ck.config = std::move(config);
  for (const auto& [name, dtype] : tensors) ck.tensors.push_back({name, dtype, {1}, 0, 0, 0});
  std::sort(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return ck;
}

Checkpoint published(const std::filesystem::path& path) {
  const Json facts = parse_json(read_text(path.string(), 1 << 22), path.string());
  std::vector<std::string> names;
  for (const Json& pattern : facts["tensors"]) expand(pattern.get<std::string>(), names);
  std::vector<std::pair<std::string, Dtype>> tensors;
  for (const std::string& name : names) tensors.emplace_back(name, Dtype::BF16);
  return with_tensors(facts["config"], tensors);
}

/// Of four experts. layers 0: as many as the published model has.
Checkpoint synthetic(const SynthModel& model, int64_t layers, bool tiny = false) {
  SynthSizes sizes;
  sizes.tiny = tiny;
  if (layers > 0) sizes.layers = layers;
  if (!tiny) sizes.experts = 4;
  const SynthCheckpoint s = describe_checkpoint(model.name, sizes);
  std::vector<std::pair<std::string, Dtype>> tensors;
  for (const SynthTensor& t : s.tensors) tensors.emplace_back(t.name, t.dtype);
  return with_tensors(s.config, tensors);
}

const SynthModel& model_called(const std::string& name) {
  const auto& all = synth_models();
  return *std::find_if(all.begin(), all.end(), [&](const SynthModel& m) { return m.name == name; });
}

std::string text_of(const std::vector<Lack>& lacks) {
  std::string out;
  for (const Lack& l : lacks) out += l.where + ": " + l.what + "\n";
  return out;
}

/// The errors for the checkpoint without the tensors whose names contain one of `parts`.
std::string without(Checkpoint ck, const std::vector<std::string>& parts) {
  const size_t before = ck.tensors.size();
  std::erase_if(ck.tensors, [&](const Tensor& t) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return t.name.find(part) != t.name.npos; });
  });
  REQUIRE(ck.tensors.size() < before);
  return text_of(find_lacks(ck));
}

}  // namespace

TEST_CASE("published models of other families lack nothing") {
  int64_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testdata() + "/published")) {
    if (entry.path().extension() != ".json") continue;
    ++models;
    INFO(entry.path().filename().string());
    // A pruned model lacks its layer of multi-token prediction, which its config still counts.
    const bool is_pruned = entry.path().filename() == "qwen3.5-moe-reap.json";
    CHECK(text_of(find_lacks(published(entry.path()))) ==
          (is_pruned ? "MTP: 1 of 1 layer are missing; config.json says mtp_num_hidden_layers = 1\n" : ""));
  }
  CHECK(models >= 25);
}

TEST_CASE("models of synth lack nothing, in their own and in small sizes") {
  for (const SynthModel& model : synth_models()) {
    INFO(std::string(model.name));
    CHECK(text_of(find_lacks(synthetic(model, 0))) == "");
    CHECK(text_of(find_lacks(synthetic(model, 0, true))) == "");
  }
}

TEST_CASE("what is taken from a whole checkpoint is named, with its layers and how many have it") {
  struct Loss {
    const char* model;
    std::vector<std::string> names;  // of the tensors that are taken away: parts of them
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
      {"deepseek-v4-flash",
       {"mtp.0."},
       "MTP: 1 of 1 layer are missing; config.json says num_nextn_predict_layers = 1\n"},
      {"glm-5.2-quark",
       {"layers.10."},
       "MTP: 1 of 1 layer are missing; config.json says num_nextn_predict_layers = 1\n"},
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
       "layers.*.e_score_correction_bias: missing in every layer; config.json says topk_method = noaux_tc\n"},
  };
  for (const Loss& l : losses) {
    INFO(l.model << " without " << l.names.front());
    CHECK(without(synthetic(model_called(l.model), 10), l.names) == l.said);
  }
}

TEST_CASE("static scales of some experts only are an error that names the first and the last without") {
  Checkpoint ck = synthetic(model_called("kimi-k2.5-quark"), 3);
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
        "model.layers.20.block_sparse_moe.gate: missing, 1 tensor in 1 layer; 55 layers of the same kind have it\n"
        "model.layers.20: experts without a router in 1 layer\n");
}

TEST_CASE("shared experts that the config counts are missing in all layers") {
  CHECK(without(published(testdata() + "/published/glm4_moe.json"), {".shared_experts."}) ==
        "model.layers.*.shared_experts: missing in every layer; config.json says n_shared_experts = 1\n");
}

TEST_CASE("a config that counts no layers promises none") {
  Checkpoint ck = synthetic(model_called("gpt-oss-20b"), 4);
  ck.config.erase("num_hidden_layers");
  CHECK(without(ck, {".layers.3."}) == "");
}

TEST_CASE("what lacks is an error, or a warning if that is allowed") {
  Checkpoint ck = synthetic(model_called("gpt-oss-20b"), 4);
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
