#include <catch2/catch.hpp>
#include <map>

#include "src/synth/synth.h"

using namespace mxfp4;

namespace {

struct Totals {
  int64_t tensors = 0, bytes = 0;
};

/// Totals of the tensors whose names contain `part`, by dtype.
std::map<std::string, Totals> totals_of(const SynthCheckpoint& checkpoint, std::string_view part) {
  std::map<std::string, Totals> totals;
  for (const SynthTensor& t : checkpoint.tensors)
    if (t.name.find(part) != std::string::npos)
      for (const char* key : {"all", name_of(t.dtype)}) totals[key].tensors++, totals[key].bytes += t.bytes;
  return totals;
}

}  // namespace

TEST_CASE("true sizes equal the published totals", "[long]") {
  // The values in the published indices and headers, or -1 if they are unknown. If only the experts of a model are
  // described as published, the test compares only experts.
  struct Published {
    const char *model, *part, *dtype;
    int64_t tensors, bytes;
  };
  const Published published[] = {
      {"gpt-oss-20b", "", "all", 459, 13'761'264'768},
      {"gpt-oss-20b", "", "U8", 96, 10'152'345'600},
      {"gpt-oss-20b", "", "BF16", 363, 3'608'919'168},
      {"gpt-oss-120b", "", "all", 687, 65'248'815'744},
      {"gpt-oss-120b", "", "U8", 144, 60'914'073'600},
      {"gpt-oss-120b", "", "BF16", 543, 4'334'742'144},
      {"deepseek-v4-flash", "", "all", 69'187, 159'609'485'896},
      {"deepseek-v4-flash", "", "BF16", 433, -1},
      {"deepseek-v4-flash", "", "F32", 417, -1},
      {"deepseek-v4-flash", "", "F8_E4M3", 375, -1},
      {"deepseek-v4-flash", "", "F8_E8M0", 34'167, -1},
      {"deepseek-v4-flash", "", "I64", 3, -1},
      {"deepseek-v4-flash", "", "I8", 33'792, -1},
      {"deepseek-v4-flash", "mtp.", "all", 1'575, 3'593'787'756},
      {"deepseek-v4-flash-0731", "", "all", 72'317, 166'878'536'440},
      {"deepseek-v4-pro", "", "all", 145'116, 864'704'792'696},
      {"deepseek-v4-pro", "", "BF16", 619, -1},
      {"deepseek-v4-pro", "", "F32", 590, -1},
      {"deepseek-v4-pro", "", "F8_E4M3", 528, -1},
      {"deepseek-v4-pro", "", "F8_E8M0", 71'952, -1},
      {"deepseek-v4-pro", "", "I64", 3, -1},
      {"deepseek-v4-pro", "", "I8", 71'424, -1},
      {"deepseek-v4.1-flash", ".experts.", "all", 94'464, 295'997'276'160},
      {"deepseek-r1-0528-quark", ".experts.", "all", 89'088, 347'389'034'496},
      {"kimi-k2.5-quark", ".experts.", "all", 138'240, 539'051'950'080},
      {"kimi-k3", "block_sparse_moe", "all", 497'220 - 1'892, 1'560'860'324'864 - 79'457'377'280},
      {"kimi-k3", "block_sparse_moe", "U8", 494'592, 1'446'456'066'048},
      {"mimo-v2.6-flash", ".experts.", "U8", 73'081 - 889, 160'859'947'008},
      {"qwen3-30b-a3b-ct", ".experts.", "U8", 36'864, 15'401'484'288},
      {"qwen3-30b-a3b-autoround", ".experts.", "U8", 36'864, 15'401'484'288},
  };
  std::string model;
  SynthCheckpoint checkpoint;
  for (const Published& p : published) {
    if (model != p.model) checkpoint = describe_checkpoint(model = p.model, {});
    INFO(p.model << " " << p.part << " " << p.dtype);
    const Totals totals = totals_of(checkpoint, p.part)[p.dtype];
    CHECK(totals.tensors == p.tensors);
    CHECK((p.bytes < 0 || totals.bytes == p.bytes));
  }
}

TEST_CASE("models that were quantized after their release have most of their published parameters in MXFP4 experts",
          "[long]") {
  struct Published {
    const char* model;
    int64_t layers, experts, hidden, intermediate;  // layers: those with routed experts in MXFP4
    double billions;                                // of the whole model
    double share = 0.94;
  };
  for (const Published& p : {Published{"glm-5.2-quark", 75, 256, 6144, 2048, 753},
                             {"glm-5.3-flash-quark", 42, 288, 4096, 2048, 320},
                             {"minimax-m2.7-quark", 62, 256, 3072, 1536, 229},
                             {"minimax-m3-quark", 57, 128, 6144, 3072, 428},
                             {"qwen3.5-397b-a17b-quark", 60, 512, 4096, 1024, 397},
                             {"hy3-ct", 79, 192, 4096, 1536, 295},
                             {"longcat-flash-ct", 28, 512, 6144, 2048, 560},
                             {"muse-spark-quark", 60, 256, 4096, 4096, 816},
                             {"trinity-mini-ct", 30, 128, 2048, 1024, 26, 0.92},
                             {"gemma-4-26b-a4b-ct", 30, 128, 2816, 704, 26, 0.87}}) {
    INFO(p.model);
    const Totals experts = totals_of(describe_checkpoint(p.model, {}), ".experts.")["U8"];
    const int64_t parameters = p.layers * p.experts * 3 * p.hidden * p.intermediate;
    CHECK(experts.tensors == p.layers * p.experts * 6);
    CHECK(experts.bytes == parameters / 2 + parameters / 32);
    CHECK(double(parameters) / 1e9 > p.share * p.billions);
    CHECK(double(parameters) / 1e9 < p.billions);
  }
  const Totals inkling = totals_of(describe_checkpoint("inkling-quark", {}), ".experts.")["U8"];
  const int64_t parameters = 63LL * 256 * 3 * 6144 * 3072;  // of 975 billion; one more layer is BF16
  CHECK(inkling.bytes == parameters / 2 + parameters / 32);
  const Totals granite = totals_of(describe_checkpoint("granite-4.0-h-small-quark", {}), "")["all"];
  const int64_t in_mxfp4 = 40LL * 72 * 3 * 4096 * 768;
  CHECK(((granite.bytes - in_mxfp4 / 2 - in_mxfp4 / 32) / 2 + in_mxfp4) / 100'000'000 ==
        322);  // published as 32.2 billion
  const Totals filter = totals_of(describe_checkpoint("privacy-filter-mxfp4", {}), ".experts.")["U8"];
  const int64_t of_filter = 8LL * 128 * 3 * 640 * 640;  // of 1.5 billion
  CHECK(filter.bytes == of_filter / 2 + of_filter / 32);
  const auto draft = [](const char* model, const char* layer) {
    return totals_of(describe_checkpoint(model, {}), layer)["all"];
  };
  CHECK(draft("glm-5.2-quark", "layers.78.mlp.experts.").bytes == 2 * 256 * 3 * 6144 * 2048LL);
  const auto parameters_of = [](const char* model) {
    int64_t count = 0;
    for (const SynthTensor& t : describe_checkpoint(model, {}).tensors)
      count += t.bytes * 8 / bits_of(t.dtype) * (t.fill == Fill::codes ? 2 : t.fill != Fill::scales);
    return count;
  };
  CHECK(parameters_of("glm-5.1-quark") / 1'000'000'000 == 744);           // as published
  CHECK(parameters_of("deepseek-r1-0528-quark") / 1'000'000'000 == 671);  // as published
  const Totals fp8 = draft("glm-5.3-flash-quark", "layers.45.mlp.experts.");
  CHECK(fp8.tensors == 288 * 6);
  CHECK(fp8.bytes == 7'249'526'784);  // published as 7.3 GB
}

TEST_CASE("true sizes have the published shards", "[long]") {
  const auto shards = [](std::string_view model) { return describe_checkpoint(model, {}).shards; };
  CHECK(shards("gpt-oss-20b") == std::vector<std::string>{"model-00000-of-00002.safetensors",
                                                          "model-00001-of-00002.safetensors",
                                                          "model-00002-of-00002.safetensors"});
  CHECK(shards("gpt-oss-120b").size() == 15);
  CHECK(shards("gpt-oss-120b").back() == "model-00014-of-00014.safetensors");
  CHECK(shards("deepseek-v4-pro").size() == 64);
  CHECK(shards("kimi-k3").front().ends_with("-of-0000" + std::to_string(shards("kimi-k3").size()) + ".safetensors"));

  const SynthCheckpoint flash = describe_checkpoint("deepseek-v4-flash", {});
  REQUIRE(flash.shards.size() == 46);
  CHECK(flash.shards.front() == "model-00001-of-00046.safetensors");
  std::map<int, int> tensors;  // of each shard
  for (const SynthTensor& t : flash.tensors) tensors[t.file]++;
  CHECK(tensors[0] == 1);
  CHECK(tensors[1] == 1565);  // ratio 0
  CHECK(tensors[3] == 1576);  // ratio 4
  CHECK(tensors[4] == 1569);  // ratio 128
  CHECK(tensors[45] == 1575);
}

TEST_CASE("the config follows the sizes") {
  SynthSizes sizes;
  sizes.layers = 5;
  sizes.experts = 4;
  sizes.hidden = 1024;
  sizes.intermediate = 96;
  sizes.vocab = 100;
  const Json gpt_oss = describe_checkpoint("gpt-oss-20b", sizes).config;
  CHECK(gpt_oss["num_hidden_layers"] == 5);
  CHECK(gpt_oss["num_local_experts"] == 4);
  CHECK(gpt_oss["hidden_size"] == 1024);
  CHECK(gpt_oss["intermediate_size"] == 96);
  CHECK(gpt_oss["vocab_size"] == 100);
  CHECK(gpt_oss["eos_token_id"] == 99);
  CHECK(gpt_oss["layer_types"] ==
        Json({"sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"}));
  const Json deepseek = describe_checkpoint("deepseek-v4-flash", sizes).config;
  CHECK(deepseek["compress_ratios"] == Json({0, 0, 4, 128, 4, 0}));
  CHECK(deepseek["num_experts_per_tok"] == 4);
  CHECK(deepseek["num_hash_layers"] == 3);
  CHECK(deepseek["quantization_config"]["weight_block_size"] == Json({128, 128}));
  CHECK(deepseek["expert_dtype"] == "fp4");
  CHECK_FALSE(describe_checkpoint("deepseek-v4-pro", sizes).config.contains("expert_dtype"));
  sizes.layers = 1;
  CHECK(describe_checkpoint("deepseek-v4-flash", sizes).config["compress_ratios"] == Json({0, 0}));
  CHECK(describe_checkpoint("kimi-k3", sizes).config["text_config"]["first_k_dense_replace"] == 0);
  const Json mimo = describe_checkpoint("mimo-v2.6-flash", sizes).config;
  CHECK(mimo["quantization_config"]["ignored_layers"] == Json::array({"model.layers.0.self_attn.o_proj"}));
  const Json flash = describe_checkpoint("deepseek-v4-flash", {}).config;
  CHECK(flash["compress_ratios"].size() == 44);
  CHECK(flash["compress_ratios"][42] == 4);
}

TEST_CASE("sizes that do not fit are refused") {
  CHECK_THROWS_WITH(describe_checkpoint("gpt-oss-7b", {}),
                    Catch::StartsWith("unknown model 'gpt-oss-7b', expected one of deepseek-r1-0528-quark, "));
  SynthSizes sizes;
  sizes.hidden = 100;
  CHECK_THROWS_WITH(describe_checkpoint("gpt-oss-20b", sizes),
                    "--hidden 100: a multiple of 32 from 32 to 16777216 expected");
  sizes.hidden = 32;  // Kimi-K3's experts have half of this size
  CHECK_THROWS_WITH(describe_checkpoint("kimi-k3", sizes), "'R/32': 16 / 32 is no whole number");
  sizes = {};
  sizes.layers = 0;
  CHECK_THROWS_WITH(describe_checkpoint("gpt-oss-20b", sizes),
                    "--layers 0: a multiple of 1 from 1 to 16777216 expected");
}
