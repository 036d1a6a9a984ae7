// Forms of MXFP4 that are refused by name, and configs that contradict the tensors.
#include "tests/support/hand_made.h"

using namespace mxfp4;

TEST_CASE("Ascend ModelSlim is refused by name") {
  const TempDir dir;
  HandMade ck(dir / "in", {{"model_type", "qwen3_moe"}});
  add_experts(ck, "model.layers.0.mlp.experts", "weight");
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

TEST_CASE("a config that contradicts the tensors is an error") {
  const TempDir dir;
  HandMade ck(dir / "in", {{"model_type", "qwen3_moe"},
                           {"quantization_config", {{"quant_method", "compressed-tensors"}, {"format", "nvfp4"}}}});
  add_experts(ck, "model.layers.0.mlp.experts", "weight_packed");
  ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
  Problems problems;
  ck.model(problems);
  CHECK(first_error(problems).find("no format 'mxfp4-pack-quantized'") != std::string::npos);
}
