// DeepGEMM's grouped FP8 x FP4 GEMM on SM10x and SM12x. Codes are canonical, w13 as [gate; up]. Scales become int32
// words of four bytes of a row, column-major, and are read through a strided view. vLLM pads both sizes to 128; biases
// become F32. The backend deepgemm-mega (deepgemm_mega.cpp) has the same shapes and strides but other bytes, which no
// kernel can detect. On SM12x both engines include the branch nv_dev, which makes the same words (33a715e of
// 2026-06-12, read). The rows list the releases without this branch. Source: DeepGEMM 54e2261 of 2026-06-23
// (transform_sf_into_required_layout, byte-checked as host code), vLLM 446179f8, SGLang b26729f22. The kernels were not
// run.
#include "src/backends/deepgemm.h"

#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

/// An engine, its option, and its releases without nv_dev.
struct Of {
  const Engine& engine;
  Setting setting;
  Range without;
};

Backend deepgemm_backend(const Of& of) {
  return {.name = "deepgemm",
          .engine = of.engine.name,
          .layout_version = "1",
          .gpu = "SM10x, SM12x",
          .summary = "DeepGEMM W4A8, fp8 activations",
          .multiple = {128, 128},
          .kernel = &kernel_format("deepgemm"),
          .w13_order = gate_up_halves,
          .parameters = both(*of.engine.names, plain_codes(), packed_scales(DeepgemmScales{}), f32_bias()),
          .releases = {of.engine.known.first, ""},
          .no_kernel = {{"SM12x", of.without}},
          .libraries = {{"deep_gemm", "54e2261 (2026-06-23)", "converter bytes equal"}},
          .requires_ = {of.setting}};
}

Backend halves(const Of& of) {
  Backend b = deepgemm_backend(of);
  b.takes = has_halves;
  return b;
}

/// vLLM's DeepGemmFP4Experts lacks GPT-OSS's activation, and SGLang passes its pairs to a kernel for halves.
Backend pairs(const Of& of) {
  Backend b = deepgemm_backend(of);
  b.takes = is_gpt_oss_like;
  b.summary = "DeepGEMM W4A8; no engine computes GPT-OSS's activation on it";
  b.releases = no_release;
  return b;
}

constexpr Of of_vllm = {engine::vllm, {"moe_backend", "deep_gemm"}, {"0.27.0", "0.27.1"}},
             of_sglang = {engine::sglang, {"moe_runner_backend", "deep_gemm"}, {"", "0.5.20"}};

}  // namespace

Backends deepgemm = {halves(of_vllm), pairs(of_vllm), halves(of_sglang), pairs(of_sglang)};

}  // namespace mxfp4
