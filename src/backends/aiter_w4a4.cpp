// AITER's MXFP4 x MXFP4 MoE on gfx950, for Quark's W4A4 checkpoints. It is like aiter-a16w4, but w13 stays as loaded.
// The scale shuffle (e8m0_shuffle) leaves some memory unwritten, unless sizes are padded to 256. Source: AITER e404860
// of 2026-08-22 (shuffle_weight, e8m0_shuffle, byte-checked as host code), vLLM 446179f8, SGLang b26729f22. The kernels
// were not run. The conversions of vLLM 0.26.0 and 0.33.0 were run on a CPU.
#include "src/backends/aiter.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

constexpr AiterKernel aiter_w4a4_kernel = {.name = "aiter-w4a4",
                                           .summary = "AITER W4A4, mxfp4 activations",
                                           .moe_backend = "aiter_mxfp4_mxfp4",
                                           .w13_order = gate_up_halves};

Backend vllm_1(bool (*takes)(const Model&), const char* first_release) {
  Backend b = aiter_vllm(aiter_w4a4_kernel);
  b.takes = takes;
  b.releases = {first_release, "0.31.0"};
  return b;
}
Backend vllm_1_quark() { return vllm_1(is_quark, "0.26.0"); }
Backend vllm_1_others() { return vllm_1(is_not_converted_as_gpt_oss, "0.28.0"); }

Backend vllm_aiter_w4a4_2() { return aiter_version_2(aiter_w4a4_kernel, {256, 128}, "0.32.0"); }

/// GPT-OSS's rows and biases stay in pairs. No engine has layout versions 1 and 2 for it.
Backend as_loaded(Backend b, const char* layout_version) {
  b.layout_version = layout_version;
  b.takes = is_gpt_oss_like;
  b.w13_order = loaded_order;
  b.kernel = &kernel_format("aiter-w4a4-loaded");
  for (Role role : roles) b.parameters[size_t(role)][size_t(Part::bias)].order = {};
  return b;
}

}  // namespace

Backends aiter_w4a4 = {vllm_aiter_w4a4_2(),
                       vllm_1_quark(),
                       vllm_1_others(),
                       as_loaded(vllm_aiter_w4a4_2(), "4"),
                       as_loaded(vllm_1_quark(), "3"),
                       aiter_sglang(aiter_w4a4_kernel)};

}  // namespace mxfp4
