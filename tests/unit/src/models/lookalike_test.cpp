// Formats that resemble MXFP4, which are refused by name.
#include "tests/support/hand_made.h"

using namespace mxfp4;

TEST_CASE("Ascend ModelSlim is refused by name") {
  const TempDir dir;
  HandMade ck(dir / "in", {{"model_type", "qwen3_moe"}});
  add_experts(ck, "model.layers.0.mlp.experts", long_names, {"weight", "weight_scale"});
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

TEST_CASE("formats that look alike are refused by name") {
  const Json config = {{"model_type", "x"}, {"quantization_config", {{"quant_method", "x"}}}};
  struct Lookalike {
    const char *codes, *scales, *beside;
    Dtype code, scale;
    const char* said;
  };
  const Lookalike all[] = {
      {"weight_packed", "weight_scale", "weight_global_scale", Dtype::U8, Dtype::F8_E4M3, "taken for NVFP4"},
      {"weight", "weight_scale", "weight_scale_2", Dtype::U8, Dtype::F8_E4M3, "NVFP4"},
      {"weight_packed", "weight_scale", "weight_shape", Dtype::I32, Dtype::BF16, "taken for INT4"},
      {"weight_packed", "weight_scale", "", Dtype::I32, Dtype::BF16, "weight_packed is I32 ["},
      {"weight", "weight_scale_inv", "", Dtype::F8_E4M3, Dtype::F32, "weight is F8_E4M3 ["},
      {"weight", "weight_scale", "", Dtype::BF16, Dtype::F32, "weight is BF16 ["},
      {"weight", "weight_scale", "", Dtype::U8, Dtype::F8_E4M3, "taken for NVFP4"},
      {"weight", "weight_scale", "", Dtype::U8, Dtype::BF16, "looks like INT4 or FP8"},
  };
  for (const Lookalike& l : all) {
    INFO(l.said << " " << l.codes << " " << name_of(l.code));
    const TempDir dir;
    HandMade ck(dir / "in", config);
    add_experts(ck, "model.layers.0.mlp.experts", long_names, {l.codes, l.scales, l.code, l.scale});
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
  add_experts(ck, "model.layers.0.mlp.experts", long_names, {"weight_packed", "weight_scale"});
  ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
  Problems problems;
  ck.model(problems);
  CHECK(first_error(problems).find("no format 'mxfp4-pack-quantized'") != std::string::npos);
}
