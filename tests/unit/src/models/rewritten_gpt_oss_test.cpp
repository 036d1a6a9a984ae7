// GPT-OSS in the form of other tools: its packed bytes are those of the original form.
#include "src/checkpoint/shard_reader.h"
#include "tests/support/hand_made.h"

using namespace mxfp4;

TEST_CASE("GPT-OSS by Quark gives the bytes of GPT-OSS") {
  const TempDir dir;
  Problems problems;
  const Checkpoint ck = open_checkpoint(tiny_gpt_oss, problems);
  const ShardReader reader(ck);
  MadeCheckpoint made;
  const auto put = [&](const std::string& name, const Tensor& from, std::vector<int64_t> shape, int64_t expert,
                       int64_t experts) {
    const int64_t bytes = from.bytes / experts;
    MadeTensor& t = made.tensors()[name] = {from.dtype, std::move(shape), std::string(size_t(bytes), 0)};
    reader.read({&from, expert * bytes, bytes}, t.data.data());
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
  made.config = ck.config;
  made.config["quantization_config"] = {{"quant_method", "quark"},
                                        {"global_quant_config", {{"weight", {{"dtype", "fp4"}}}}}};
  made.write(dir / "in");
  for (const char* engine : {"vllm", "sglang"}) {
    CHECK(convert_with(find_backend("marlin", engine, "1"), dir / "in", dir / engine) == "");
    convert(conversion(tiny_gpt_oss, dir / ("usual-" + std::string(engine)), engine));
    CHECK(contents_of(dir / engine).at("packed/packed-00001.safetensors") ==
          contents_of(dir / ("usual-" + std::string(engine))).at("packed/packed-00001.safetensors"));
  }
  run_unpack(dir / "vllm", dir / "again");
  CHECK(contents_of(dir / "again") == contents_of(dir / "in"));
}

namespace {

/// Writes the tiny GPT-OSS in MLX's form: separate gate and up, words of eight codes, and a quantised router with
/// scales.
void write_mlx(const std::string& dir, const std::string& switch_mlp, const char* mode) {
  Problems problems;
  const Checkpoint ck = open_checkpoint(tiny_gpt_oss, problems);
  const ShardReader reader(ck);
  MadeCheckpoint made;
  made.metadata = {{"format", "mlx"}};
  const auto put = [&](const std::string& name, Dtype dtype, std::vector<int64_t> shape, const std::string& bytes) {
    made.tensors()[name] = {dtype, std::move(shape), bytes};
  };
  for (const Tensor& t : ck.tensors) {
    std::string bytes(size_t(t.bytes), 0);
    reader.read({&t, 0, t.bytes}, bytes.data());
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
  made.config = ck.config;
  made.config["quantization"] = made.config["quantization_config"] = {{"group_size", 32}, {"bits", 4}, {"mode", mode}};
  made.write(dir);
}

}  // namespace

TEST_CASE("GPT-OSS by MLX gives the bytes of GPT-OSS") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "vllm", "vllm"));
  convert(conversion(tiny_gpt_oss, dir / "sglang", "sglang"));
  for (const char* module : {".experts", ".switch_mlp"}) {
    INFO(module);
    const std::string in = dir / ("in" + std::string(module));
    write_mlx(in, module, "mxfp4");
    Problems problems;
    const Model m = recognise_dir(in, problems);
    CHECK(first_error(problems) == "");
    CHECK(m.family == "mlx");
    CHECK(m.notes ==
          std::vector<std::string>{"quantised as only MLX reads it, not vLLM and SGLang: lm_head_like.weight"});
    for (const char* engine : {"vllm", "sglang"}) {
      const std::string out = dir / (engine + std::string(module));
      CHECK(convert_with(find_backend("marlin", engine, "1"), in, out) == "");
      const auto packed = tensors_of_file(out + "/packed/packed-00001.safetensors"),
                 usual = tensors_of_file(dir / engine + "/packed/packed-00001.safetensors");
      REQUIRE(packed.size() == usual.size());
      auto theirs = usual.begin();
      for (const auto& [name, tensor] : packed) CHECK(tensor == (theirs++)->second);
    }
    run_unpack(dir / ("vllm" + std::string(module)), dir / ("again" + std::string(module)));
    CHECK(contents_of(dir / ("again" + std::string(module))) == contents_of(in));
  }
  write_mlx(dir / "affine", ".experts", "affine");
  Problems problems;
  recognise_dir(dir / "affine", problems);
  CHECK(first_error(problems) ==
        "config.json: quantization has no mode 'mxfp4': MLX's affine quantization is no MXFP4");
}
