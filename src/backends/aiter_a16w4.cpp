// AITER's bf16 x MXFP4 MoE on gfx950. GPT-OSS's rows are de-interleaved. Then the shuffle orders w13 in blocks of 16
// gate and 16 up rows, codes in tiles of 16 rows x 16 bytes, and scales in CDNA4 order. Both sizes are padded to 256
// with zeros; biases become F32 and stay [gate; up]. Later tests of AITER use no gate-up interleave for bf16
// activations, so the bytes are tied to the AITER version below. Loaders set is_shuffled and view codes as
// float4_e2m1fn_x2.
//
// SGLang fills its scale buffers with 1.0, which remains as padding (1-ones). From 0.5.23 on it pads the scales of
// Kimi-K3 with zeros (1-k3). For DeepSeek-V4 SGLang names the scales ..._scale_inv (layout version 2). Source: AITER
// e404860 of 2026-08-22 (shuffle_weight_a16w4, shuffle_scale_a16w4, byte-checked as host code), vLLM 446179f8, SGLang
// b26729f22; SGLang 0.5.17 to 0.5.23 on a CPU. The kernels were not run.
#include "src/backends/aiter.h"
#include "src/backends/registry.h"
#include "src/backends/sglang_kimi_k3.h"

namespace mxfp4 {

namespace {

RowOrder blocks_of_16(const Model&) { return {16, false}; }

constexpr AiterKernel aiter_a16w4_kernel = {.name = "aiter-a16w4",
                                            .summary = "AITER W4A16, bf16 activations",
                                            .moe_backend = "aiter",
                                            .w13_order = blocks_of_16};

Backend vllm_pairs() {
  Backend b = aiter_vllm(aiter_a16w4_kernel);
  b.takes = is_gpt_oss_like;
  return b;
}

/// Excludes Quark, because vLLM reads Quark's halves as pairs and makes wrong rows of them.
Backend vllm_halves() {
  Backend b = aiter_vllm(aiter_a16w4_kernel);
  b.takes = is_not_converted_as_gpt_oss;
  b.releases = {"0.26.0", "0.27.1"};
  return b;
}

Backend vllm_aiter_a16w4_2() {
  Backend b = aiter_version_2(aiter_a16w4_kernel, {128, 128}, "0.28.0");
  b.takes = is_not_converted_as_gpt_oss;
  return b;
}

/// SGLANG_USE_AITER_MOE_GU_ITLV=0, and for Kimi-K3 AITER_SITUV2_A4W4=1, keep the rows in halves.
Backend sglang_aiter_a16w4() {
  Backend b = aiter_sglang(aiter_a16w4_kernel);
  b.takes = is_not_deepseek_v4;
  for (const char* name :
       {"unset:SGLANG_USE_AITER_MOE_GU_ITLV", "unset:AITER_SITUV2_A4W4", "unset:SGLANG_AITER_K3_OPT"})
    b.requires_.push_back({name, ""});
  return b;
}

Backend sglang_aiter_a16w4_ones() {
  Backend b = sglang_aiter_a16w4();
  b.layout_version = "1-ones";
  b.takes = is_neither_kimi_k3_nor_deepseek_v4;
  pad_scales_with_ones(b);
  b.releases.first = "0.5.17";
  b.tested = "converter bytes equal (0.5.17 to 0.5.23, on a CPU)";
  return b;
}

/// SGLang's method for an FP8 checkpoint keeps the names of scales as loaded, and pads only the intermediate size, to
/// 128.
Backend sglang_2() {
  Backend b = sglang_aiter_a16w4();
  b.layout_version = "2";
  b.multiple = {128, 128};
  b.takes = is_deepseek_v4;
  b.parameters = aiter_parameters(sglang_inv_names);
  b.refuse = refuse_unless_256;
  b.releases = {"0.5.19", ""};
  return b;
}

Backend sglang_deepseek_1() {
  Backend b = aiter_sglang(aiter_a16w4_kernel);
  b.takes = is_deepseek_v4;
  b.releases.last = "0.5.18";
  return b;
}

}  // namespace

Backends aiter_a16w4 = {vllm_pairs(),
                        vllm_aiter_a16w4_2(),
                        vllm_halves(),
                        sglang_aiter_a16w4_ones(),
                        kimi_k3_to_0_5_22(sglang_aiter_a16w4_ones()),
                        kimi_k3_from_0_5_23(sglang_aiter_a16w4(), "1-k3"),
                        sglang_aiter_a16w4(),
                        sglang_2(),
                        sglang_deepseek_1()};

}  // namespace mxfp4
