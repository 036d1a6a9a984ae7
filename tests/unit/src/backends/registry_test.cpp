// Tests every backend of the registry through the program's functions: golden layers, inverse, refusals.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "src/backends/backend.h"
#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/said.h"
#include "tests/support/seal.h"

using namespace mxfp4;

namespace {

const char* const layers[] = {"layer_gpt_oss.safetensors", "layer_deepseek.safetensors"};

/// "vllm.marlin.w13_scale" -> "vllm.marlin"; empty for inputs and ranks.
std::string tag_of(const std::string& name) {
  const bool other = name.starts_with("in.") || name.find(".rank") != name.npos;
  return other ? "" : name.substr(0, name.rfind('.'));
}

std::set<std::string> tags_of(const Golden& golden) {
  std::set<std::string> tags;
  for (const Tensor& t : golden.tensors()) tags.insert(tag_of(t.name));
  return tags;
}

/// The backend that makes the golden tensors with a tag.
struct Maker {
  std::string tag, backend, engine, version;
};

/// Calls f(file, maker) for each row of "backends" in testdata/golden/packings.json. A row without a layer is for both
/// layers of checkpoints, if they have its tag.
template <class F>
void each_maker(const F& f) {
  const Json table = golden_table("packings.json");
  for (const Json& row : table.at("backends")) {
    const Maker maker{row["tag"], row["backend"], row["engine"], row["layout_version"]};
    if (row.contains("layer")) {
      f(row["layer"].get<std::string>() + ".safetensors", maker);
      continue;
    }
    for (const char* file : layers)
      if (tags_of(Golden(file)).count(maker.tag)) f(file, maker);
  }
}

Role role_of(std::string_view part) {
  const bool w13 = part.starts_with("w13") || part.starts_with("fc1") || part.starts_with("gemm1");
  return w13 ? Role::w13 : Role::w2;
}
Part part_of(std::string_view part) {
  return part.find("scale") != part.npos      ? Part::scales
         : part.find("bias") != part.npos     ? Part::bias
         : part.find("residual") != part.npos ? Part::residual
                                              : Part::codes;
}

ConvertOptions options_of(const Maker& m, const std::string& from, const std::string& to) {
  ConvertOptions o = conversion(from, to, m.engine, m.backend);
  o.layout_version = m.version;
  return o;
}

/// The backend for which an output's tensors were made. Among equal names, the backend that supports the family.
const Backend& backend_of(const Maker& m, const Golden& golden) {
  Model model;
  model.pairs = golden.metadata("w13_rows") == "pairs";
  model.family = model.pairs ? "gpt-oss" : "deepseek-v4";
  model.layers.resize(1);
  model.layers[0].hidden = golden.find("in.w13")->shape[2] * 2;
  return find_backend(m.backend, m.engine, m.version, &model);
}

std::string text(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

/// A golden layer and an output that was made of it.
struct Converted {
  Converted(const char* file, const Maker& m) : golden(file), source(golden, dir / "in") {
    convert(options_of(m, dir / "in", dir / "out"));
    tensors = tensors_of(dir / "out");
  }

  std::string packed(const std::string& parameter) const { return tensors.at(source.module() + "." + parameter); }
  Json set() const { return parse_json(read_text(dir / "out/mxfp4-pack.json", 1 << 20), "manifest")["sets"][0]; }

  const TempDir dir;
  const Golden golden;
  const LayerCheckpoint source;
  std::map<std::string, std::string> tensors;
};

/// Converts a golden layer and compares every packed tensor; then verifies and unpacks it.
void check_layer(const Golden& golden, const Maker& m) {
  const TempDir dir;
  const LayerCheckpoint source(golden, dir / "in");
  convert(options_of(m, dir / "in", dir / "out"));
  const auto packed = tensors_of(dir / "out");
  const Backend& backend = backend_of(m, golden);
  size_t compared = 0;
  for (const Tensor& t : golden.tensors()) {
    if (tag_of(t.name) != m.tag) continue;
    const std::string part = t.name.substr(t.name.rfind('.') + 1);
    const Parameter& p = backend.parameter(role_of(part), part_of(part));
    INFO(t.name << " " << p.name);
    const auto got = packed.find(source.module() + "." + p.name);
    REQUIRE(got != packed.end());
    CHECK(got->second.starts_with(name_of(p.dtype)));
    CHECK(got->second.substr(got->second.find(']') + 1) == text(golden.bytes(t)));
    ++compared;
  }
  CHECK(compared + 1 == packed.size());  // the router is copied
  CHECK(is_right(dir / "out", dir / "in"));
  if (backend.rewrite) return;
  CHECK(is_right(dir / "out"));
  CHECK(comes_back(dir));
}

/// The lines of the error if convert refuses the checkpoint.
std::string refusal(const Maker& m, const std::string& from) {
  const TempDir dir;
  return said_by([&] { convert(options_of(m, from, dir / "out")); });
}

}  // namespace

TEST_CASE("every golden layer through the program, forward and inverse") {
  each_maker([](const std::string& file, const Maker& m) {
    INFO(file << " " << m.tag << " by " << m.backend << " " << m.engine << " " << m.version);
    check_layer(Golden(file), m);
  });
}

TEST_CASE("SGLang's factor of an expert is 64 times FlashInfer's residual, and one more number lies beside it") {
  const Converted c("layer_deepseek.safetensors", {"", "flashinfer-humming", "sglang", ""});
  const std::string factor = c.packed("w13_humming_residual_scale");
  REQUIRE(factor.starts_with("F32 [2]"));
  const auto residual = c.golden.bytes(*c.golden.find("flashinfer_humming.w13_residual"));
  for (size_t e : {0, 1}) {
    float is, base;
    std::memcpy(&is, factor.data() + factor.find(']') + 1 + 4 * e, 4);
    std::memcpy(&base, residual.data() + 4 * e, 4);
    CHECK(is == 64 * base);
  }
  const Json set = c.set();
  CHECK(set["constants"].back() ==
        Json({{"name", "humming_fc2_act_scale"}, {"value", 1}, {"dtype", "F32"}, {"shape", Json::array()}}));
  CHECK(is_right(c.dir / "out", c.dir / "in", Level::kernels));
}

TEST_CASE("vLLM pads nothing of compressed-tensors for Marlin") {
  const TempDir dir;
  const Maker marlin{"", "marlin", "vllm", ""};
  write_synth("qwen3-30b-a3b-ct", dir / "in", {.layers = 1, .experts = 2, .hidden = 128, .intermediate = 192});
  convert(options_of(marlin, dir / "in", dir / "out"));
  int compared = 0;
  for (const auto& [name, tensor] : tensors_of(dir / "out")) {
    if (name.ends_with("w13_weight")) CHECK(tensor.starts_with("I32 [2, 8, 768]"));
    if (name.ends_with("w2_weight_scale")) CHECK(tensor.starts_with("F8_E8M0 [2, 6, 128]"));
    compared += name.ends_with("w13_weight") + name.ends_with("w2_weight_scale");
  }
  CHECK(compared == 2);
  CHECK(is_right(dir / "out", dir / "in", Level::kernels));
  CHECK(comes_back(dir));
  write_synth("qwen3-30b-a3b-ct", dir / "odd", {.layers = 1, .experts = 2, .hidden = 128, .intermediate = 96});
  CHECK(refusal(marlin, dir / "odd").find("intermediate 96 is no multiple of 64; vLLM pads nothing here") !=
        std::string::npos);
}

TEST_CASE("SGLang's TRTLLM takes biases of zero for a model that has none") {
  Model kimi;
  kimi.family = "kimi-k3";
  const Backend& b = find_backend("flashinfer-trtllm", "sglang", "", &kimi);
  std::map<std::string, Dims> shapes;
  for (const Constant& c : b.constants(kimi)) shapes[c.name] = c.shape(8, {512, 128});
  CHECK(shapes == std::map<std::string, Dims>{{"w13_weight_bias", {8, 256}}, {"w2_weight_bias", {8, 512}}});
  kimi.bias = true;  // so that biases are tensors
  CHECK(b.constants(kimi).empty());
}

TEST_CASE("SGLang's TRTLLM for DeepSeek-V4 pads intermediate with scales of one from 0.5.21") {
  const Converted c("layer_sglang_marlin.safetensors",
                    {"", "flashinfer-trtllm", "sglang", ""});  // hidden 256, intermediate 160
  const std::string w2 = c.packed("w2_weight_scale_inv");
  REQUIRE(w2.starts_with("F8_E4M3 [2, 256, 8]"));
  CHECK(std::count(w2.begin() + int64_t(w2.find(']')), w2.end(), char(0x7F)) >= 2 * 256 * 3);
  CHECK(is_right(c.dir / "out", c.dir / "in"));
}

TEST_CASE("every golden tag has a backend") {
  std::set<std::string> made = {""};
  each_maker([&](const std::string&, const Maker& m) { made.insert(m.tag); });
  for (const char* file : layers)
    for (const std::string& tag : tags_of(Golden(file))) {
      INFO(tag);
      CHECK(made.count(tag) == 1);
    }
}

TEST_CASE("a kernel reads biases of the size in which its backend stores them") {
  for (const Backend* b : backends()) {
    INFO(b->name << " of " << b->engine);
    const Parameter& bias = b->parameter(Role::w13, Part::bias);
    if (b->kernel && !bias.name.empty()) CHECK(bits_of(bias.dtype) / 8 == bias_element_bytes(b->kernel->bias));
  }
}

TEST_CASE("a shape that a backend cannot serve is refused with the reason") {
  const Maker humming{"", "flashinfer-humming", "vllm", ""};
  CHECK(refusal(humming, tiny_gpt_oss).find("hidden 96 and intermediate 160 must be multiples of 128") !=
        std::string::npos);
  for (const char* backend : {"flashinfer-cutlass", "flashinfer-cutlass-mxfp8"})
    CHECK(refusal({"", backend, "sglang", ""}, tiny + "deepseek-v4")
              .find("layers.0.ffn.experts: " + std::string(backend) +
                    " of sglang cannot serve it: hidden 128 and intermediate 64 must be multiples of 128") !=
          std::string::npos);
  CHECK(refusal({"", "flashinfer-cutedsl", "vllm", ""}, tiny_gpt_oss).find("supports no bias") != std::string::npos);
}

TEST_CASE("a lossy backend reports what was lost, and has no way back") {
  const Converted c("layer_deepseek.safetensors", {"", "flashinfer-humming", "vllm", ""});
  const Json loss = c.set()["loss"];
  const int64_t groups = c.golden.find("in.w13_scale")->bytes + c.golden.find("in.w2_scale")->bytes;
  int64_t minus_zeros = 0;
  for (const char* name : {"in.w13", "in.w2"})
    for (uint8_t b : c.golden.bytes(*c.golden.find(name))) minus_zeros += (b & 15) == 8, minus_zeros += b >> 4 == 8;
  CHECK(loss["groups"] == groups);
  CHECK(loss["minus_zeros"] == minus_zeros);
  CHECK(loss["groups_clamped"] > 0);
  CHECK_THROWS_WITH(run_unpack(c.dir / "out", c.dir / "again"), Catch::Contains("lossy"));
  CHECK_THROWS_WITH(is_right(c.dir / "out"), Catch::Contains("needs --source"));
  CHECK(is_right(c.dir / "out", {}, Level::files));
}

TEST_CASE("marlin-fp8 refuses scale bytes above 249") {
  const TempDir dir;
  const std::string from = tiny_gpt_oss;
  std::filesystem::copy(from, dir / "in", std::filesystem::copy_options::recursive);
  Problems problems;
  const Checkpoint ck = open_checkpoint(dir / "in", problems);
  const Tensor& t = *ck.find("model.layers.0.mlp.experts.down_proj_scales");
  const auto put = [&](char byte) {
    std::fstream f(ck.shards[size_t(t.file)].path, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(t.offset + 7);
    f.put(byte);
  };
  const Maker fp8{"", "marlin-fp8", "vllm", ""};
  put(char(249));
  CHECK(refusal(fp8, dir / "in") == "");
  put(char(250));
  CHECK(refusal(fp8, dir / "in").find("row 1, group 2: scale byte 250 above 249") != std::string::npos);
  CHECK(refusal({"", "marlin", "vllm", ""}, dir / "in") == "");
}

TEST_CASE("SGLang pads GPT-OSS for FlashInfer's SM90 kernel to 256, columns of scales with 0x7F") {
  const Converted c("layer_gpt_oss.safetensors",
                    {"", "flashinfer-cutlass", "sglang", "v1"});  // hidden 320, intermediate 352
  const std::string scales = c.packed("w13_weight_scale");
  REQUIRE(scales.starts_with("U8 [2, 4, 3072]"));  // v1: [512/128, 4 * 2 * 384], rows up then gate
  const std::string bytes = scales.substr(scales.find(']') + 1);
  for (int64_t row : {0, 351, 352, 383, 384, 735, 736, 767})
    for (int64_t g = 10; g < 16; ++g) {
      const bool real_row = row % 384 < 352;
      CHECK(uint8_t(bytes[size_t(g / 4 * 3072 + row * 4 + g % 4)]) == (real_row ? 0x7F : 0x00));
    }
  CHECK(c.packed("w13_weight_bias").starts_with("BF16 [2, 768]"));
}

TEST_CASE("what a loader needs stands in the manifest") {
  const TempDir dir;
  const Golden golden("layer_gpt_oss.safetensors");
  const LayerCheckpoint source(golden, dir / "in");
  const auto set_of = [&](const Maker& m) {
    ConvertOptions o = options_of(m, dir / "in", dir / "out");
    o.force = true;
    convert(o);
    Json set = parse_json(read_text(dir / "out/mxfp4-pack.json", 1 << 20), "manifest")["sets"][0];
    set["tensors"] = read_lines(dir / "out/packed/tensors-0.jsonl");
    return set;
  };
  const auto tensor_of = [](const Json& set, const std::string& parameter) {
    for (const Json& t : set["tensors"])
      if (t["parameter"] == parameter) return t;
    return Json();
  };
  const Json triton = set_of({"", "triton-hopper", "vllm", "c"});
  const Json codes = tensor_of(triton, "w2_weight"), scales = tensor_of(triton, "w2_weight_scale");
  CHECK(codes["shape"] == Json({2, 128, 768}));
  CHECK(codes["view"] == Json({{"dtype", "uint8"}, {"shape", {2, 768, 128}}, {"strides", {98304, 1, 768}}}));
  CHECK(codes["triton"] ==
        Json({{"class", "HopperMXValueLayout"}, {"mx_axis", 1}, {"logical_shape", {2, 384, 320}}, {"mma_version", 3}}));
  CHECK(scales["triton"] ==
        Json({{"class", "HopperMXScaleLayout"}, {"mx_axis", 1}, {"logical_shape", {2, 12, 320}}, {"num_warps", 8}}));
  CHECK(triton["requires"]["moe_backend"] == "triton");
  const Json deepgemm = set_of({"", "deepgemm", "vllm", "1"});
  CHECK(tensor_of(deepgemm, "w13_weight_scale")["view"] ==
        Json({{"dtype", "int32"}, {"shape", {2, 768, 3}}, {"strides", {2304, 1, 768}}}));
  const Json sglang = set_of({"", "flashinfer-cutlass", "sglang", ""});
  REQUIRE(sglang["constants"].size() == 3);
  CHECK(sglang["constants"][0] == Json({{"name", "swiglu_alpha"}, {"value", 1.702}, {"dtype", "F32"}, {"shape", {2}}}));
}
