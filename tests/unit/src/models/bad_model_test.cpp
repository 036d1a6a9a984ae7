// Checkpoints with wrong tensors, config or data: convert reports every error and writes nothing.
#include "src/models/model.h"
#include "src/packed/manifest.h"
#include "tests/support/try_checkpoint.h"

using namespace mxfp4;

namespace {

const std::string shard = "model-1.safetensors: ";
const std::string experts = "model.layers.0.mlp.experts", gate_up = experts + ".gate_up_proj_",
                  down = experts + ".down_proj_";
const std::string deep = "layers.0.ffn.experts";
const std::string in_one_layer =
    ", but other experts of " + deep + " are MXFP4; experts of a layer in one precision expected";

template <class Change>
Lines said_to_gpt_oss(Change change) {
  MadeCheckpoint c = make_gpt_oss();
  change(c);
  return said_to(c);
}

template <class Change>
Lines said_to_deepseek(Change change) {
  MadeCheckpoint c = make_deepseek();
  change(c);
  return said_to(c);
}

/// Gives the tensor another dtype or shape.
void reshape(MadeTensor& t, Dtype dtype, std::vector<int64_t> shape) {
  t = make_tensor(dtype, std::move(shape), 100, 40);
}

Lines said_to_reshaped(MadeCheckpoint c, const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
  reshape(c.at(name), dtype, std::move(shape));
  return said_to(c);
}

Lines said_to_config(const char* key, const Json& value, MadeCheckpoint c = make_gpt_oss()) {
  c.config[key] = value;
  return said_to(c);
}

void put_float(MadeTensor& t, size_t i, float value) { std::memcpy(&t.data[4 * i], &value, 4); }

/// A DeepSeek checkpoint with F32 scales, all 1.
MadeCheckpoint with_float_scales() {
  MadeCheckpoint c = make_deepseek();
  for (auto& [name, t] : c.tensors()) {
    if (!name.ends_with(".scale")) continue;
    reshape(t, Dtype::F32, t.shape);
    for (size_t i = 0; i < t.data.size() / 4; ++i) put_float(t, i, 1);
  }
  return c;
}

}  // namespace

TEST_CASE("more experts than any model has") {
  CHECK(said_to_gpt_oss([](auto& c) {
          reshape(c.tensors()[gate_up + "blocks"], Dtype::U8, {65537, 1, 1, 16});
        }).front() == shard + gate_up + "blocks: 65537 experts, at most 65536 expected");
}

TEST_CASE("GPT-OSS tensors of another shape or dtype") {
  CHECK(said_to_reshaped(make_gpt_oss(), down + "blocks", Dtype::U8, {2, 3072}) ==
        Lines{shard + down +
              "blocks: U8 [2, 3072], [experts, rows, columns/32, 16] or [experts, rows, columns/2] expected"});
  CHECK(said_to_reshaped(make_gpt_oss(), down + "blocks", Dtype::U8, {2, 64, 3, 8}) ==
        Lines{shard + down +
              "blocks: U8 [2, 64, 3, 8], [experts, rows, columns/32, 16] or [experts, rows, columns/2] expected"});
  CHECK(said_to_reshaped(make_gpt_oss(), down + "blocks", Dtype::U8, {2, 0, 3, 16}) ==
        Lines{shard + down + "blocks: U8 [2, 0, 3, 16] is empty"});
  CHECK(said_to_reshaped(make_gpt_oss(), down + "blocks", Dtype::U8, {0, 4611686018427387904, 3, 16}) ==
        Lines{shard + down + "blocks: U8 [0, 4611686018427387904, 3, 16] is empty"});
  CHECK(said_to_reshaped(make_gpt_oss(), down + "scales", Dtype::U8, {2, 64, 6}) ==
        Lines{shard + down +
              "scales: U8 [2, 64, 6] for codes U8 [2, 64, 3, 16], [2, 64, 3] expected; one scale per 16 is "
              "NVFP4"});
  CHECK(said_to_reshaped(make_gpt_oss(), down + "scales", Dtype::U8, {2, 63, 3}) ==
        Lines{shard + down + "scales: U8 [2, 63, 3] for codes U8 [2, 64, 3, 16], [2, 64, 3] expected"});
  CHECK(said_to_reshaped(make_gpt_oss(), down + "bias", Dtype::F32, {2, 64}) ==
        Lines{shard + down + "bias: F32 [2, 64], BF16 [2, 64] expected"});
  CHECK(said_to_gpt_oss([](auto& c) {
          reshape(c.at(down + "blocks"), Dtype::U8, {2, 64, 4, 16});
          reshape(c.at(down + "scales"), Dtype::U8, {2, 64, 4});
        }) == Lines{shard + gate_up +
                    "blocks: 2 experts with 192 rows of 64 columns, 2 with 256 of 64 expected by "
                    "down_proj_blocks"});
}

TEST_CASE("as many experts as the router has rows") {
  const std::string router = "model.layers.0.mlp.router.weight";
  CHECK(said_to_reshaped(make_gpt_oss(), router, Dtype::BF16, {3, 64}) ==
        Lines{shard + gate_up + "blocks: 2 experts, the router has 3"});
  CHECK(said_to_reshaped(make_gpt_oss(), router, Dtype::BF16, {128}) ==
        Lines{shard + router + ": BF16 [128] is no router, [experts, hidden] expected"});
  CHECK(said_to_reshaped(make_deepseek(), "layers.0.ffn.gate.weight", Dtype::BF16, {1, 64}) ==
        Lines{deep + ": surplus experts 1, the router has 1"});
  CHECK(said_to_deepseek([](auto& c) {
          add_deepseek_layer(c, "layers.0.", 9);
          for (const char* id : {"0", "2", "3", "5"})
            for (const char* w : {".w1", ".w2", ".w3"})
              for (const char* part : {".weight", ".scale"}) c.tensors().erase(deep + "." + id + w + part);
        }) == Lines{deep + ": experts 0, 2-3, 5 missing, the router has 9"});
  CHECK(said_to_deepseek([](auto& c) {
          c.tensors()["layers.1.ffn.gate.weight"] = make_tensor(Dtype::BF16, {2, 64}, 0, 9);
        }) == Lines{shard + "layers.1.ffn.gate.weight: a router without experts (layers.1.ffn.experts.* expected)"});
}

TEST_CASE("DeepSeek experts that are not complete or differ") {
  const std::string w1 = deep + ".1.w1", w2 = deep + ".1.w2";
  CHECK(said_to_deepseek([&](auto& c) { c.tensors().erase(w1 + ".weight"); }) ==
        Lines{shard + w1 + ".scale: scales without codes (" + w1 + ".weight expected)"});
  CHECK(said_to_deepseek([&](auto& c) {
          c.tensors().erase(w1 + ".weight");
          c.tensors().erase(w1 + ".scale");
        }) == Lines{w1 + ": missing; experts without gate, up and down are not supported"});
  CHECK(said_to_deepseek([&](auto& c) {
          reshape(c.at(w1 + ".weight"), Dtype::I8, {64, 32});
          reshape(c.at(w1 + ".scale"), Dtype::F8_E8M0, {64, 2});
        }) == Lines{shard + w1 + ".weight: 64 rows of 64 columns, 96 of 64 expected"});
  CHECK(said_to_reshaped(make_deepseek(), w1 + ".weight", Dtype::I8, {96, 31}) ==
        Lines{shard + w1 + ".weight: 62 columns, a multiple of 32 expected"});
  CHECK(said_to_reshaped(make_deepseek(), w1 + ".weight", Dtype::I8, {96, 32, 1}) ==
        Lines{shard + w1 + ".weight: I8 [96, 32, 1], [rows, columns/2] expected"});
  CHECK(said_to_reshaped(make_deepseek(), w1 + ".weight", Dtype::F8_E4M3, {96, 64}) ==
        Lines{shard + w1 + ".weight: MXFP8" + in_one_layer});
  CHECK(said_to_reshaped(make_deepseek(), w1 + ".weight", Dtype::U8, {96, 32}) ==
        Lines{shard + w1 + ".weight: U8 codes and F8_E8M0 scales, the layer's other experts have I8 and F8_E8M0"});
  CHECK(said_to_reshaped(make_deepseek(), w2 + ".scale", Dtype::F8_E4M3, {64, 3}) ==
        Lines{shard + w2 + ".weight: NVFP4" + in_one_layer});
  CHECK(said_to_deepseek([&](auto& c) {
          for (auto& [name, t] : c.tensors())
            if (name.ends_with(".w2.weight"))
              reshape(t, Dtype::I8, {64, 64});
            else if (name.ends_with(".w2.scale"))
              reshape(t, Dtype::F8_E8M0, {64, 1});
        })[0] ==
        shard + deep +
            ".0.w2.scale: F8_E8M0 [64, 1] for codes I8 [64, 64], [64, 4] expected; looks like block FP8 (2 such, the "
            "last is " +
            deep + ".1.w2.scale)");
  CHECK(said_to_deepseek([&](auto& c) {
          c.tensors()[deep + ".01.w1.weight"] = c.at(w1 + ".weight");
          c.tensors()[deep + ".1.w1.bias"] = make_tensor(Dtype::BF16, {96}, 0, 9);
        }) == Lines{shard + deep + ".01.w1.weight: not known among MXFP4 experts (2 such in " + deep + ")"});
  MadeCheckpoint right = make_deepseek(), c;
  c.config = right.config;
  for (const auto& [name, t] : right.tensors()) c.tensors()[name.find(".w") == name.npos ? name : name + "_inv"] = t;
  CHECK(said_to(c) == Lines{shard + deep +
                            ".0.w1.weight_inv: experts' tensors called w1, w3 and w2 with .weight and .scale "
                            "expected"});
}

TEST_CASE("layers that do not go together") {
  CHECK(said_to_deepseek([](auto& c) { add_deepseek_layer(c, "model.layers.0.", 2); }) ==
        Lines{"model." + deep + ": " + deep + " is layer 0, too"});
  CHECK(said_to_deepseek([](auto& c) { add_deepseek_layer(c, "extra.", 2); }) ==
        Lines{"extra.ffn.experts: no layer number in the name"});
  CHECK(said_to_gpt_oss([](auto& c) {
          for (const char* part : {"blocks", "scales", "bias"}) {
            c.tensors()["model.layers.1.mlp.experts.down_proj_" + std::string(part)] = c.at(down + part);
            c.tensors()["model.layers.1.mlp.experts.gate_up_proj_" + std::string(part)] = c.at(gate_up + part);
          }
          c.tensors()["model.layers.1.mlp.router.weight"] = c.at("model.layers.0.mlp.router.weight");
          c.tensors().erase("model.layers.1.mlp.experts.down_proj_bias");
          c.tensors().erase("model.layers.1.mlp.experts.gate_up_proj_bias");
        }) == Lines{"model.layers.1.mlp.experts: no bias, " + experts + " has one"});
}

TEST_CASE("formats that look like MXFP4") {
  const auto said = [](const std::string& suffix) {
    return said_to_deepseek([&](auto& c) { c.tensors()[deep + ".0.w1" + suffix] = make_tensor(Dtype::F32, {}, 0, 9); });
  };
  CHECK(said(".weight_global_scale") == Lines{shard + deep + ".0.w1.weight: NVFP4" + in_one_layer});
  CHECK(said(".weight_scale_2") == Lines{shard + deep + ".0.w1.weight: NVFP4" + in_one_layer});
  CHECK(said(".weight_shape") == Lines{shard + deep + ".0.w1.weight: INT4" + in_one_layer});
  MadeCheckpoint c;
  c.tensors()["block.0.mlp.mlp1_weight.blocks"] = make_codes(Dtype::U8, {2, 192, 2, 16});
  c.config = {{"num_experts", 2}};
  CHECK(said_to(c) ==
        Lines{shard + "block.0.mlp.mlp1_weight.blocks: this is GPT-OSS in OpenAI's own naming (original/); use "
                      "the repository's root"});
}

TEST_CASE("nothing to convert") {
  CHECK(said_to_deepseek([](auto& c) {
          for (auto& [name, t] : c.tensors())
            if (name.ends_with(".weight") && name.find(".experts.") != name.npos)
              t = make_tensor(Dtype::F8_E4M3, {64, 64}, 0, 99);
        }) ==
        Lines{"CKPT: no MXFP4 routed experts found; layers.0.ffn.experts.0.w1.weight is F8_E4M3 [64, 64], config.json "
              "says quant_method fp8"});
  const auto half = [](const char* name, bool with_nvfp4_scales) {
    MadeCheckpoint c;
    c.config = {{"model_type", "x"}};
    c.tensors()[name] = make_codes(Dtype::U8, {64, 32});
    if (with_nvfp4_scales) c.tensors()["a.experts.mine_scale"] = make_scales(Dtype::F8_E4M3, {64, 4});
    return said_to(c).at(0);
  };
  CHECK_THAT(half("a.experts.mine_w", false), Catch::Contains("a.experts.mine_w is U8 [64, 32], without scales, and"));
  CHECK_THAT(half("a.experts.mine_scale", false), Catch::Contains("is U8 [64, 32], scales without codes, and"));
  CHECK_THAT(half("a.experts.mine_w", true), Catch::Contains("is U8 [64, 32], with scales of NVFP4, and"));
  CHECK(said_to_gpt_oss([](auto& c) { c.tensors().clear(); }) ==
        Lines{"CKPT: no routed experts found; a mixture-of-experts checkpoint in MXFP4 was expected, config.json says "
              "quant_method mxfp4"});
}

TEST_CASE("a config that contradicts the tensors") {
  CHECK(said_to_config("intermediate_size", 64) ==
        Lines{experts + ": 96 columns or rows, config.json says intermediate_size = 64"});
  const std::string method = "but the experts are MXFP4 ('mxfp4' expected)";
  CHECK(said_to_config("quantization_config", {{"quant_method", "fp8"}}) ==
        Lines{"config.json: quantization_config.quant_method is 'fp8', " + method});
  CHECK(said_to_config("expert_dtype", "fp8", make_deepseek()) ==
        Lines{"config.json: expert_dtype is 'fp8', but the experts are MXFP4 ('fp4' expected)"});
  CHECK(said_to_deepseek([](auto& c) {
          c.config.erase("expert_dtype");
          c.config["quantization_config"]["expert_dtype"] = "fp8";
        }) == Lines{"config.json: expert_dtype is 'fp8', but the experts are MXFP4 ('fp4' expected)"});
  CHECK(said_to_deepseek([](auto& c) { c.config.erase("quantization_config"); }) ==
        Lines{"config.json: no quantization_config, but the experts are MXFP4"});
}

TEST_CASE("a config of absurd values") {
  const std::string count = ", a whole number of at least 1 expected";
  CHECK(said_to_config("hidden_size", -64) == Lines{"config.json: hidden_size is -64" + count});
  CHECK(said_to_config("hidden_size", 64.5) == Lines{"config.json: hidden_size is 64.5" + count});
  CHECK(said_to_config("hidden_size", 1e300) == Lines{"config.json: hidden_size is 1e+300" + count});
  CHECK(said_to_config("hidden_size", "64") == Lines{"config.json: hidden_size is \"64\"" + count});
  for (const MadeCheckpoint& c : {make_gpt_oss(), make_deepseek()}) {
    const std::string layers = ", a whole number from 1 to 10000 expected";
    CHECK(said_to_config("num_hidden_layers", "x", c) == Lines{"config.json: num_hidden_layers is \"x\"" + layers});
    CHECK(said_to_config("n_layers", -1, c) == Lines{"config.json: n_layers is -1" + layers});
    CHECK(said_to_config("n_layers", 1e9, c) == Lines{"config.json: n_layers is 1000000000.0" + layers});
  }
  CHECK(said_to_config("num_local_experts", Json::array({1, 2})) ==
        Lines{"config.json: num_local_experts is [1,2]" + count});
  CHECK(said_to_config("num_experts_per_tok", UINT64_MAX) ==
        Lines{"config.json: num_experts_per_tok is 18446744073709551615" + count});
  const std::string number = ", 0 or a number from 2^-20 to 2^20 expected";
  CHECK(said_to_config("swiglu_limit", "\x1b[0m") == Lines{"config.json: swiglu_limit is \"\\u001b[0m\"" + number});
  CHECK(said_to_config("swiglu_limit", -7) == Lines{"config.json: swiglu_limit is -7" + number});
  CHECK(said_to_config("swiglu_limit", 0x1p64) ==
        Lines{"config.json: swiglu_limit is 1.8446744073709552e+19" + number});
  CHECK(said_to_config("swiglu_limit", 1e-300) == Lines{"config.json: swiglu_limit is 1e-300" + number});
  CHECK(said_to_config("swiglu_limit", -0.0) == Lines{"config.json: swiglu_limit is -0.0" + number});
  CHECK(said_to_config("quantization_config", {{"quant_method", 4}}) ==
        Lines{"config.json: quantization_config.quant_method is '', but the experts are MXFP4 ('mxfp4' expected)"});
  CHECK(said_to_config("quantization_config", 3) ==
        Lines{"config.json: quantization_config is 3, an object expected",
              "config.json: quantization_config.quant_method is '', but the experts are MXFP4 ('mxfp4' expected)"});
  CHECK(said_to_config("routed_scaling_factor", -0.0, make_deepseek()) ==
        Lines{"config.json: routed_scaling_factor is -0.0" + number});
  CHECK(
      said_to_config("routed_scaling_factor", 0, make_deepseek()) ==
      Lines{
          "config.json: routed_scaling_factor is 0, which makes every output 0; a number from 2^-20 to 2^20 expected"});
  CHECK(said_to_config("scoring_func", Json::object(), make_deepseek()) ==
        Lines{"config.json: scoring_func is {}, a string expected"});
  CHECK(said_to_config("expert_dtype", 4, make_deepseek()) ==
        Lines{"config.json: expert_dtype is 4, a string expected"});
}

TEST_CASE("a tensor that has the name of a packed one") {
  CHECK(said_to_gpt_oss([](auto& c) { c.tensors()[experts + ".w13_weight"] = make_tensor(Dtype::U8, {1}, 0, 1); }) ==
        Lines{shard + experts + ".w13_weight: not known among MXFP4 experts (1 such in " + experts + ")"});
}

TEST_CASE("scales 0xFF are refused, all tensors named, and taken with --allow-incomplete") {
  const TempDir dir;
  MadeCheckpoint c = make_gpt_oss();
  c.at(down + "scales").data[64 * 3 + 4] = '\xFF';
  c.at(down + "scales").data[64 * 3 + 5] = '\xFF';
  c.at(gate_up + "scales").data[5] = '\xFF';
  c.write(dir / "ckpt");
  ConvertOptions o = marlin(dir);
  CHECK(
      said_to(dir, o) ==
      Lines{
          shard + gate_up +
              "scales: expert 0, row 2, group 1: 0xFF is NaN, which --allow-incomplete accepts (1 such scales here)",
          shard + down +
              "scales: expert 1, row 1, group 1: 0xFF is NaN, which --allow-incomplete accepts (2 such scales here)"});
  o.model.allow_incomplete = true;
  CHECK(warned_of(dir, o).empty());
  CHECK(read_manifest_file(o.out + "/mxfp4-pack.json").options.model.allow_incomplete);
  o.out = dir / "lossy", o.backend = "flashinfer-humming", o.engine = "sglang";
  CHECK(said_to(dir, o).at(0) ==
        shard + gate_up +
            "scales: expert 0, row 2, group 1: 0xFF is NaN, which a lossy backend cannot keep (1 such scales here)");
}

TEST_CASE("F32 scales that are no power of two") {
  const std::string scale = deep + ".1.w3.scale";
  const auto said = [&](float value) {
    MadeCheckpoint c = with_float_scales();
    put_float(c.at(scale), 7, value);
    return said_to(c);
  };
  const auto line = [&](const std::string& value) {
    return Lines{shard + scale + ": expert 1, row 3, group 1: " + value +
                 " is no power of two from 2^-127 to 2^127 (1 such scales here)"};
  };
  CHECK(said(3) == line("3"));
  CHECK(said(-1) == line("-1"));
  CHECK(said(-0.0f) == line("-0"));
  CHECK(said(NAN) == line("nan"));
  CHECK(said(INFINITY) == line("inf"));
  CHECK(said(std::ldexp(1.f, -128)) == line("2.938736e-39"));
  CHECK(said(0) == Lines{shard + scale + ": expert 1, row 3, group 1: scale 0.0 over codes that are not zero"});
  MadeCheckpoint c = with_float_scales();
  std::memset(&c.at(deep + ".1.w3.weight").data[7 * 16], 0x08, 16);  // 32 codes of 0 or -0
  put_float(c.at(scale), 7, 0);
  put_float(c.at(scale), 9, std::ldexp(1.f, -127));
  CHECK(said_to(c) == Lines{shard + scale +
                            ": expert 1, row 3, group 1: holds both 0.0 and 2^-127, which would become the same byte"});
}
