// DeepGEMM's fused expert-parallel MoE on SM10x (fp8_fp4_mega_moe). w13 is in blocks of 8 gate and 8 up rows; codes are
// otherwise canonical. Scales are deepgemm's words, with each block of 128 rows in UTCCP order. Both sizes are padded
// to 128. The kernel supports no bias. GPT-OSS's biases are stored in addition, as F32 in the rows' order, for engines
// that add them. Source: DeepGEMM 54e2261 of 2026-06-23 (the mega-MoE weight transform, byte-checked as host code),
// vLLM DeepseekV4MegaMoEExperts, SGLang build_mega_moe_experts_weights. The kernels were not run.
#include "src/backends/deepgemm.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

RowOrder blocks_of_8(const Model&) { return {8, false}; }

Backend deepgemm_mega_backend(const Engine& engine, Setting setting) {
  return {.name = "deepgemm-mega",
          .engine = engine.name,
          .layout_version = "1",
          .gpu = "SM10x",
          .summary = "DeepGEMM mega-MoE W4A8, fp8 activations",
          .multiple = {128, 128},
          .kernel = &kernel_format("deepgemm-mega"),
          .w13_order = blocks_of_8,
          .parameters = both(*engine.names, plain_codes(), packed_scales(DeepgemmMegaScales{}), f32_bias()),
          .releases = {engine.known.first, ""},
          .libraries = {{"deep_gemm", "54e2261 (2026-06-23)", "converter bytes equal"}},
          .requires_ = {setting}};
}

}  // namespace

Backends deepgemm_mega = {deepgemm_mega_backend(engine::vllm, {"moe_backend", "deep_gemm_mega_moe"}),
                          deepgemm_mega_backend(engine::sglang, {"moe_a2a_backend", "megamoe"})};

}  // namespace mxfp4
