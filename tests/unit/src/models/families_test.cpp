// Checkpoint families: what is recognised, what is refused by name, and every family into every backend.
#include <catch2/catch.hpp>

#include "src/backends/backend.h"
#include "src/inspect/inspect.h"
#include "src/synth/synth.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

void write_synth(const std::string& model, const std::string& dest, std::optional<int64_t> hidden = {},
                 std::optional<int64_t> intermediate = {}) {
  SynthOptions o;
  o.model = model, o.dest = dest, o.seed = 3, o.threads = 2;
  o.sizes.tiny = true, o.sizes.hidden = hidden, o.sizes.intermediate = intermediate;
  o.sizes.layers = 2, o.sizes.experts = 2;
  synth(o);
}

Model recognise_dir(const std::string& dir, Problems& problems, const ModelOptions& options = {}) {
  const Checkpoint ck = open_checkpoint(dir, problems);
  return recognise(ck, options, problems);
}

/// A checkpoint of one file written by hand.
class HandMade {
 public:
  HandMade(std::string dir, Json config) : dir_(std::move(dir)), config_(std::move(config)) {}
  void add(const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    const int64_t bytes = tensor_bytes(dtype, shape);
    tensors_.push_back({name, dtype, std::move(shape), 0, int64_t(data_.size()), bytes});
    for (int64_t i = 0; i < bytes; ++i) data_.push_back(char(100 + (i * 7 + int64_t(tensors_.size())) % 50));
  }
  /// Writes and reads back.
  Model model(Problems& problems, const ModelOptions& options = {}) {
    write();
    return recognise_dir(dir_, problems, options);
  }
  void write() const {
    std::filesystem::create_directories(dir_);
    write_text(dir_ + "/model.safetensors", write_header(tensors_, {{"format", "pt"}}, 8) + data_);
    write_text(dir_ + "/config.json", config_.dump());
  }

 private:
  std::string dir_, data_;
  Json config_;
  std::vector<Tensor> tensors_;
};

/// Two experts of hidden 64 and intermediate 32 under names of a family.
void add_experts(HandMade& ck, const std::string& module, const std::array<const char*, 3>& proj,
                 const std::string& codes, const std::string& scales, Dtype code = Dtype::U8, Dtype scale = Dtype::U8) {
  for (int e = 0; e < 2; ++e)
    for (int p = 0; p < 3; ++p) {
      const std::string stem = fmt::format("{}.{}.{}.", module, e, proj[size_t(p)]);
      const int64_t n = p == 2 ? 64 : 32, k = p == 2 ? 32 : 64;
      ck.add(stem + codes, code, {n, code == Dtype::U8 || code == Dtype::I8 ? k / 2 : k});
      ck.add(stem + scales, scale, {n, k / 32});
    }
}
constexpr std::array<const char*, 3> long_names = {"gate_proj", "up_proj", "down_proj"};

std::string first_error(const Problems& p) { return p.any() ? p.errors().front() : ""; }

/// Converts and verifies, or gives the reason of the refusal.
std::string convert_with(const Backend& b, const std::string& from, const std::string& out) {
  ConvertOptions o = conversion(from, out, b.engine, b.name);
  o.layout_version = b.layout_version;
  o.threads = 1;
  try {
    convert(o);
  } catch (const Error& e) {
    return e.lines.front();
  }
  CHECK(is_right(out, from));
  return {};
}

}  // namespace

TEST_CASE("every published model's structure is recognised") {
  struct Expected {
    const char *model, *family;
    int64_t hidden, intermediate;
    size_t layers, last_experts;
  };
  const Expected all[] = {
      {"gpt-oss-20b", "gpt-oss", 96, 160, 2, 2},
      {"gpt-oss-120b", "gpt-oss", 96, 160, 2, 2},
      {"deepseek-v4-flash", "deepseek-v4", 128, 128, 3, 2},
      {"deepseek-v4-pro", "deepseek-v4", 128, 128, 3, 2},
      {"deepseek-v4.1-flash", "deepseek-v4.1", 128, 96, 5, 2},
      {"kimi-k2.5-quark", "quark", 128, 64, 1, 2},
      {"kimi-k3", "kimi-k3", 64, 96, 1, 2},
      {"mimo-v2.6-flash", "mimo", 128, 64, 1, 2},
      {"qwen3-30b-a3b-ct", "compressed-tensors", 128, 96, 2, 2},
  };
  CHECK(std::size(all) == synth_models().size());
  for (const Expected& x : all) {
    INFO(x.model);
    const TempDir dir;
    write_synth(x.model, dir / "in");
    Problems problems;
    const Model m = recognise_dir(dir / "in", problems);
    problems.throw_if_any();
    CHECK(m.family == x.family);
    REQUIRE(m.layers.size() == x.layers);
    CHECK(m.layers[0].hidden == x.hidden);
    CHECK(m.layers[0].intermediate == x.intermediate);
    CHECK(m.layers.back().experts.size() == x.last_experts);
    const bool quantised_attention = std::string(x.model) == "qwen3-30b-a3b-ct";
    CHECK(m.notes == (quantised_attention
                          ? std::vector<std::string>{"8 MXFP4 linears outside the routed experts are passed through"}
                          : std::vector<std::string>{}));
  }
}

TEST_CASE("every published model into every backend that accepts its shape; the others say why") {
  for (const SynthModel& model : synth_models()) {
    const TempDir dir;
    write_synth(std::string(model.name), dir / "in");
    int converted = 0;
    const bool all_versions = model.name == "gpt-oss-20b" || model.name == "deepseek-v4-flash";
    for (const Backend* b : backends()) {
      const std::string_view usual = find_backend(b->name, b->engine, "").layout_version;
      if (!all_versions && b->layout_version != usual) continue;
      INFO(model.name << " " << b->engine << " " << b->name << " " << b->layout_version);
      const std::string out = dir / fmt::format("{}", size_t(b - backends().front()));
      const std::string why = convert_with(*b, dir / "in", out);
      std::filesystem::remove_all(out);
      const bool refused =
          why.find(" cannot serve it: ") != why.npos || why.find(" is not for models of family ") != why.npos;
      CHECK((why.empty() || refused));
      converted += why.empty();
    }
    CHECK(converted >= (all_versions ? 25 : 20));
  }
}

TEST_CASE("shapes that need no padding go into every backend") {
  const TempDir dir;
  write_synth("deepseek-v4-flash", dir / "in", 256, 256);
  for (const char* name : {"flashinfer-cutedsl", "flashinfer-humming"}) {
    INFO(name);
    CHECK(convert_with(find_backend(name, "vllm", ""), dir / "in", dir / name) == "");
  }
}

TEST_CASE("Hugging Face's and Quark's names of DeepSeek-V4") {
  const Json config = {{"model_type", "deepseek_v4"}, {"quantization_config", {{"quant_method", "fp8"}}}};
  for (const char* scales : {"weight_scale_inv", "weight_scale", "scale"}) {
    INFO(scales);
    const TempDir dir;
    HandMade ck(dir / "in", config);
    add_experts(ck, "model.layers.0.mlp.experts", long_names, "weight", scales, Dtype::I8, Dtype::F8_E8M0);
    ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
    Problems problems;
    const Model m = ck.model(problems);
    CHECK(first_error(problems) == "");
    CHECK(m.family == "deepseek-v4");
    REQUIRE(m.layers.size() == 1);
    CHECK(m.layers[0].hidden == 64);
    CHECK(m.layers[0].intermediate == 32);
  }
}

TEST_CASE("ModelOpt says what it is beside the config, or nowhere") {
  for (const Json& config :
       {Json{{"model_type", "x"}}, Json{{"model_type", "x"}, {"quantization_config", {{"quant_algo", "mxfp4"}}}}}) {
    const TempDir dir;
    HandMade ck(dir / "in", config);
    add_experts(ck, "model.layers.3.mlp.experts", long_names, "weight", "weight_scale");
    ck.add("model.layers.3.mlp.gate.weight", Dtype::BF16, {2, 64});
    Problems problems;
    CHECK(ck.model(problems).family == "modelopt");
    CHECK(first_error(problems) == "");
    CHECK(convert_with(find_backend("marlin", "vllm", ""), dir / "in", dir / "out") == "");
    const Json made = parse_json(read_text(dir / "out/config.json", 1 << 20), "config");
    CHECK(made["quantization_config"]["quant_method"] == "mxfp4_pack");
    run_unpack(dir / "out", dir / "again");
    CHECK(tensors_of(dir / "again") == tensors_of(dir / "in"));
  }
}

TEST_CASE("gate and up fused by an engine, and stacked") {
  struct Spelling {
    const char *w13, *w2, *codes, *scales;
  };
  for (const Spelling& s :
       {Spelling{".w13", ".w2", "_weight", "_weight_scale"}, {".w13", ".w2", ".weight", ".scale"}}) {
    const TempDir dir;
    HandMade ck(dir / "in", {{"model_type", "gemma4"}, {"quantization_config", {{"quant_method", "mxfp4"}}}});
    const std::string module = "model.layers.0.mlp.experts";
    ck.add(module + s.w13 + s.codes, Dtype::U8, {2, 64, 32});
    ck.add(module + s.w13 + s.scales, Dtype::U8, {2, 64, 2});
    ck.add(module + s.w2 + s.codes, Dtype::U8, {2, 64, 16});
    ck.add(module + s.w2 + s.scales, Dtype::U8, {2, 64, 1});
    ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
    Problems problems;
    const Model m = ck.model(problems);
    CHECK(first_error(problems) == "");
    CHECK(m.family == "fused");
    REQUIRE(m.layers.size() == 1);
    CHECK(m.layers[0].module == module);
    CHECK(m.layers[0].experts[1].up.codes.offset == 32 * 32);
    CHECK(convert_with(find_backend("triton-hopper", "vllm", ""), dir / "in", dir / "out") == "");
    run_unpack(dir / "out", dir / "again");
    CHECK(tensors_of(dir / "again") == tensors_of(dir / "in"));
  }
}

TEST_CASE("GPT-OSS by Quark gives the bytes of GPT-OSS") {
  const TempDir dir;
  Problems problems;
  const Checkpoint ck = open_checkpoint(tiny + "gpt-oss", problems);
  const ShardReader reader(ck);
  std::vector<Tensor> tensors;
  std::string data;
  const auto put = [&](const std::string& name, const Tensor& from, std::vector<int64_t> shape, int64_t expert,
                       int64_t experts) {
    std::string bytes(size_t(from.bytes / experts), 0);
    reader.read(from, expert * int64_t(bytes.size()), int64_t(bytes.size()), bytes.data());
    tensors.push_back({name, from.dtype, std::move(shape), 0, int64_t(data.size()), int64_t(bytes.size())});
    data += bytes;
  };
  for (const Tensor& t : ck.tensors) {
    const size_t at = t.name.find("_proj_");
    if (t.name.find(".experts.") == t.name.npos) {
      put(t.name, t, t.shape, 0, 1);
      continue;
    }
    const std::string module = t.name.substr(0, t.name.find(".experts.") + 8), part = t.name.substr(at + 6);
    const std::string proj = t.name.substr(module.size() + 1, at + 5 - module.size() - 1);
    const int64_t e = t.shape[0], n = t.shape[1];
    for (int64_t i = 0; i < e; ++i)
      put(fmt::format("{}.{}.{}.{}", module, i, proj,
                      part == "blocks"   ? "weight"
                      : part == "scales" ? "weight_scale"
                                         : "bias"),
          t, part == "bias" ? std::vector<int64_t>{n} : std::vector<int64_t>{n, t.bytes / e / n}, i, e);
  }
  Json config = ck.config;
  config["quantization_config"] = {{"quant_method", "quark"},
                                   {"global_quant_config", {{"weight", {{"dtype", "fp4"}}}}}};
  std::filesystem::create_directories(dir / "in");
  write_text(dir / "in/model.safetensors", write_header(tensors, {{"format", "pt"}}, 8) + data);
  write_text(dir / "in/config.json", config.dump());
  for (const char* engine : {"vllm", "sglang"}) {
    CHECK(convert_with(find_backend("marlin", engine, ""), dir / "in", dir / engine) == "");
    convert(conversion(tiny + "gpt-oss", dir / ("usual-" + std::string(engine)), engine));
    CHECK(contents_of(dir / engine).at("packed/packed-00001.safetensors") ==
          contents_of(dir / ("usual-" + std::string(engine))).at("packed/packed-00001.safetensors"));
  }
  run_unpack(dir / "vllm", dir / "again");
  CHECK(tensors_of(dir / "again") == tensors_of(dir / "in"));
}

TEST_CASE("ModelOpt's separate file is read where the config says nothing, and must not contradict") {
  const auto first = [](const Json& algorithm, const Json& config) {
    const TempDir dir;
    HandMade ck(dir / "in", config);
    add_experts(ck, "model.layers.3.mlp.experts", long_names, "weight", "weight_scale");
    ck.add("model.layers.3.mlp.gate.weight", Dtype::BF16, {2, 64});
    ck.write();
    write_text(dir / "in/hf_quant_config.json",
               Json{{"producer", {{"name", "modelopt"}}}, {"quantization", algorithm}}.dump());
    Problems problems;
    CHECK(recognise_dir(dir / "in", problems).family == "modelopt");
    if (problems.any()) return first_error(problems);
    CHECK(convert_with(find_backend("marlin", "vllm", ""), dir / "in", dir / "out") == "");
    run_unpack(dir / "out", dir / "again");
    CHECK(contents_of(dir / "again").count("hf_quant_config.json") == 1);
    return std::string();
  };
  const Json silent = {{"model_type", "x"}};
  CHECK(first({{"quant_algo", "W4A8_MXFP4_FP8"}, {"group_size", 32}}, silent) == "");
  CHECK(first({{"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", {{"a", {{"quant_algo", "mxfp4"}}}}}}, silent) ==
        "");
  CHECK(first({{"quant_algo", "FP8"}}, silent) == "hf_quant_config.json: quant_algo is no MXFP4, but the experts are");
  CHECK(first({{"quant_algo", "FP8"}}, {{"model_type", "x"}, {"quantization_config", {{"quant_algo", "mxfp4"}}}}) ==
        "");
}

TEST_CASE("Ascend ModelSlim is refused by name") {
  const TempDir dir;
  HandMade ck(dir / "in", {{"model_type", "qwen3_moe"}});
  add_experts(ck, "model.layers.0.mlp.experts", long_names, "weight", "weight_scale");
  ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
  ck.write();
  const auto said = [&](const char* type) {
    write_text(dir / "in/quant_model_description.json",
               Json{{"model_quant_type", type}, {"model.layers.0.mlp.experts.0.gate_proj.weight", type}}.dump());
    Problems problems;
    recognise_dir(dir / "in", problems);
    return first_error(problems);
  };
  CHECK(said("W4A4_MXFP4").find("W4A4_MXFP4: Ascend ModelSlim's form of MXFP4, which is not read") !=
        std::string::npos);
  CHECK(said("W4A8_MXFP").find("W4A8_MXFP: Ascend ModelSlim's") != std::string::npos);
}

namespace {

/// The tiny GPT-OSS as MLX holds it: gate and up apart, words of eight codes, a quantised router beside its scales.
void write_mlx(const std::string& dir, const std::string& switch_mlp, const char* mode) {
  Problems problems;
  const Checkpoint ck = open_checkpoint(tiny + "gpt-oss", problems);
  const ShardReader reader(ck);
  std::vector<Tensor> tensors;
  std::string data;
  const auto put = [&](const std::string& name, Dtype dtype, std::vector<int64_t> shape, const std::string& bytes) {
    tensors.push_back({name, dtype, std::move(shape), 0, int64_t(data.size()), int64_t(bytes.size())});
    data += bytes;
  };
  for (const Tensor& t : ck.tensors) {
    std::string bytes(size_t(t.bytes), 0);
    reader.read(t, 0, t.bytes, bytes.data());
    const size_t at = t.name.find("_proj_");
    if (t.name.find(".experts.") == t.name.npos) {
      put(t.name, t.dtype, t.shape, bytes);
      continue;
    }
    const std::string module = t.name.substr(0, t.name.find(".experts.")) + switch_mlp, part = t.name.substr(at + 6);
    const bool fused = t.name.find("gate_up") != t.name.npos;
    const int64_t e = t.shape[0], n = t.shape[1], row = t.bytes / e / n;
    for (int64_t first = 0; first < (fused ? 2 : 1); ++first) {
      std::string rows;
      for (int64_t r = first; r < e * n; r += fused ? 2 : 1) rows += bytes.substr(size_t(r * row), size_t(row));
      const char* proj = !fused ? ".down_proj" : first ? ".up_proj" : ".gate_proj";
      const int64_t half = fused ? n / 2 : n;
      if (part == "blocks") put(module + proj + ".weight", Dtype::U32, {e, half, row / 4}, rows);
      if (part == "scales") put(module + proj + ".scales", Dtype::U8, {e, half, row}, rows);
      if (part == "bias") put(module + proj + ".bias", Dtype::BF16, {e, half}, rows);
    }
  }
  put("model.embed_tokens.scales", Dtype::BF16, {1}, "..");
  put("lm_head_like.weight", Dtype::U32, {1, 1}, "....");
  Json config = ck.config;
  config["quantization"] = config["quantization_config"] = {{"group_size", 32}, {"bits", 4}, {"mode", mode}};
  std::filesystem::create_directories(dir);
  write_text(dir + "/model.safetensors", write_header(tensors, {{"format", "mlx"}}, 8) + data);
  write_text(dir + "/config.json", config.dump());
}

}  // namespace

TEST_CASE("GPT-OSS by MLX gives the bytes of GPT-OSS") {
  const TempDir dir;
  convert(conversion(tiny + "gpt-oss", dir / "vllm", "vllm"));
  convert(conversion(tiny + "gpt-oss", dir / "sglang", "sglang"));
  for (const char* module : {".experts", ".switch_mlp"}) {
    INFO(module);
    const std::string in = dir / ("in" + std::string(module));
    write_mlx(in, module, "mxfp4");
    Problems problems;
    const Model m = recognise_dir(in, problems);
    CHECK(first_error(problems) == "");
    CHECK(m.family == "mlx");
    CHECK(m.notes ==
          std::vector<std::string>{"1 other tensors are quantised as only MLX reads them; vLLM and SGLang do not"});
    for (const char* engine : {"vllm", "sglang"}) {
      const std::string out = dir / (engine + std::string(module));
      CHECK(convert_with(find_backend("marlin", engine, ""), in, out) == "");
      const auto packed = tensors_of_file(out + "/packed/packed-00001.safetensors"),
                 usual = tensors_of_file(dir / engine + "/packed/packed-00001.safetensors");
      REQUIRE(packed.size() == usual.size());
      auto theirs = usual.begin();
      for (const auto& [name, tensor] : packed) CHECK(tensor == (theirs++)->second);
    }
    run_unpack(dir / ("vllm" + std::string(module)), dir / ("again" + std::string(module)));
    CHECK(tensors_of(dir / ("again" + std::string(module))) == tensors_of(in));
  }
  write_mlx(dir / "affine", ".experts", "affine");
  Problems problems;
  recognise_dir(dir / "affine", problems);
  CHECK(first_error(problems) ==
        "config.json: quantization has no mode 'mxfp4': MLX's affine quantization is no MXFP4");
}

TEST_CASE("formats that look alike are refused by name") {
  const Json config = {{"model_type", "x"}, {"quantization_config", {{"quant_method", "x"}}}};
  struct Lookalike {
    const char *codes, *scales, *beside;
    Dtype code, scale;
    const char* said;
  };
  const Lookalike all[] = {
      {"weight_packed", "weight_scale", "weight_global_scale", Dtype::U8, Dtype::F8_E4M3, "NVFP4"},
      {"weight", "weight_scale", "weight_scale_2", Dtype::U8, Dtype::F8_E4M3, "NVFP4"},
      {"weight_packed", "weight_scale", "weight_shape", Dtype::I32, Dtype::BF16, "INT4"},
      {"weight_packed", "weight_scale", "", Dtype::I32, Dtype::BF16, "experts are I32"},
      {"weight", "weight_scale_inv", "", Dtype::F8_E4M3, Dtype::F32, "experts are F8_E4M3"},
      {"weight", "weight_scale", "", Dtype::BF16, Dtype::F32, "experts are BF16"},
      {"weight", "weight_scale", "", Dtype::U8, Dtype::F8_E4M3, "looks like NVFP4"},
      {"weight", "weight_scale", "", Dtype::U8, Dtype::BF16, "looks like INT4 or FP8"},
  };
  for (const Lookalike& l : all) {
    INFO(l.said << " " << l.codes << " " << name_of(l.code));
    const TempDir dir;
    HandMade ck(dir / "in", config);
    add_experts(ck, "model.layers.0.mlp.experts", long_names, l.codes, l.scales, l.code, l.scale);
    if (*l.beside) ck.add(std::string("model.layers.0.mlp.experts.0.gate_proj.") + l.beside, Dtype::F32, {1});
    ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
    Problems problems;
    ck.model(problems);
    CHECK(first_error(problems).find(l.said) != std::string::npos);
  }
}

TEST_CASE("a config that contradicts the tensors is an error") {
  const TempDir dir;
  HandMade ck(dir / "in", {{"model_type", "qwen3_moe"},
                           {"quantization_config", {{"quant_method", "compressed-tensors"}, {"format", "nvfp4"}}}});
  add_experts(ck, "model.layers.0.mlp.experts", long_names, "weight_packed", "weight_scale");
  ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
  Problems problems;
  ck.model(problems);
  CHECK(first_error(problems).find("no format 'mxfp4-pack-quantized'") != std::string::npos);
}

// vllm#42595: 384 columns padded to 512 before they were cut left ranks 6 and 7 of 8 without any.
TEST_CASE("columns are cut before they are padded, so that no rank is made of padding alone") {
  const TempDir dir;
  write_synth("qwen3-30b-a3b-ct", dir / "in", 256, 384);
  Problems problems;
  const Checkpoint ck = open_checkpoint(dir / "in", problems);
  const Model model = recognise(ck, {}, problems);
  const Backend& marlin = find_backend("marlin", "vllm", "", &model);
  make_plan(ck, model, marlin, {.tp = {8, {0, 1, 2, 3, 4, 5, 6, 7}}}, problems);
  REQUIRE(problems.any());
  CHECK_THROWS_WITH(problems.throw_if_any(), Catch::Contains("does not split into 8 ranks of whole groups of 32"));
  Problems none;
  const Plan plan = make_plan(ck, model, marlin, {.tp = {4, {0, 1, 2, 3}}}, none);
  none.throw_if_any();
  for (const PackedTensor& t : plan.packed) {
    CHECK(t.intermediate.count == 96);
    CHECK(t.intermediate.begin == 96 * t.rank);
  }
}

TEST_CASE("an FP8 checkpoint with routed_experts_quant_method mxfp4 is Ling's") {
  const TempDir dir;
  HandMade ck(dir / "in",
              {{"model_type", "bailing_moe_v3"},
               {"hidden_size", 64},
               {"moe_intermediate_size", 32},
               {"num_experts", 2},
               {"num_experts_per_tok", 1},
               {"quantization_config", {{"quant_method", "fp8"}, {"routed_experts_quant_method", "mxfp4"}}}});
  add_experts(ck, "model.layers.1.mlp.experts", {"gate_proj", "up_proj", "down_proj"}, "weight", "weight_scale_inv",
              Dtype::U8, Dtype::F8_E8M0);
  ck.add("model.layers.1.mlp.gate.weight", Dtype::BF16, {2, 64});
  ck.add("model.layers.1.mlp.shared_experts.gate_proj.weight", Dtype::F8_E4M3, {32, 64});
  ck.add("model.layers.1.mlp.shared_experts.gate_proj.weight_scale_inv", Dtype::F32, {1, 1});
  Problems problems;
  const Model model = ck.model(problems);
  problems.throw_if_any();
  CHECK(model.family == "ling");
  REQUIRE(model.layers.size() == 1);
  CHECK(model.layers[0].experts.size() == 2);
  CHECK(model.rest.size() == 3);
  CHECK(model.router.scoring == "sigmoid");
}
