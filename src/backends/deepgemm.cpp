// DeepGEMM's grouped FP8 x FP4 GEMM on SM10x and SM12x. Codes are canonical, w13 as [gate; up]. Scales become int32
// words of four bytes of a row, column-major, and are read through a strided view. vLLM pads both sizes to 128; biases
// become F32. The backend deepgemm-mega (deepgemm_mega.cpp) has the same shapes and strides but other bytes, which no
// kernel can detect. On SM12x both engines include the branch nv_dev, which makes the same words (33a715e of
// 2026-06-12, read). select.cpp lists the releases without this branch. Source: DeepGEMM 54e2261 of 2026-06-23
// (transform_sf_into_required_layout, byte-checked as host code), vLLM 446179f8, SGLang b26729f22. The kernels were not
// run.
#include "src/backends/deepgemm.h"

#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Backend deepgemm_backend(const Engine& engine, Setting setting) {
  return {.name = "deepgemm",
          .engine = engine.name,
          .layout_version = "1",
          .gpu = "SM10x, SM12x",
          .summary = "DeepGEMM W4A8, fp8 activations",
          .multiple = {128, 128},
          .kernel = &kernel_format("deepgemm"),
          .w13_order = gate_up_halves,
          .parameters = both(*engine.names, plain_codes(), packed_scales(DeepgemmScales{}), f32_bias()),
          .releases = {engine.known.first, ""},
          .libraries = {{"deep_gemm", "54e2261 (2026-06-23)", "converter bytes equal"}},
          .requires_ = {setting}};
}

Backend halves(const Engine& engine, Setting setting) {
  Backend b = deepgemm_backend(engine, setting);
  b.takes = has_halves;
  return b;
}

/// vLLM's DeepGemmFP4Experts lacks GPT-OSS's activation, and SGLang passes its pairs to a kernel for halves.
Backend pairs(const Engine& engine, Setting setting) {
  Backend b = deepgemm_backend(engine, setting);
  b.takes = is_gpt_oss_like;
  b.summary = "DeepGEMM W4A8; no engine computes GPT-OSS's activation on it";
  b.releases = no_release;
  return b;
}

constexpr Setting vllm_setting = {"moe_backend", "deep_gemm"}, sglang_setting = {"moe_runner_backend", "deep_gemm"};

}  // namespace

Backends deepgemm = {halves(engine::vllm, vllm_setting), pairs(engine::vllm, vllm_setting),
                     halves(engine::sglang, sglang_setting), pairs(engine::sglang, sglang_setting)};

}  // namespace mxfp4
