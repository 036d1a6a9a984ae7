// FlashInfer's trtllm-gen MoE on SM10x; the same bytes serve BF16 and MXFP8 activations. w13 is ordered as pairs (up,
// gate). Then all rows of codes, scales and F32 bias are shuffled in blocks of 32. Scales are in 128x4 atoms. They have
// the dtype float8_e4m3fn, which the launcher requires, although they are E8M0 bytes.
//
// Hidden is padded to 256; intermediate to 128 (i128) by SGLang and by vLLM from 0.27.0, to 256 (i256) by vLLM up to
// 0.26.0 and by SGLang up to 0.5.16. For DeepSeek-V4 SGLang names the scales ..._scale_inv; it pads nothing up to
// 0.5.20, and later the intermediate size to 128 (i128-ones). For Kimi-K3 SGLang from 0.5.23 on fills all pads of the
// intermediate size with zeros, including those of scales (i128-k3).
// Source: FlashInfer 0.6.18 (shuffle_matrix_a, shuffle_matrix_sf_a, all row indices byte-checked), vLLM 0.26.0 and
// 0.27.0, SGLang b26729f22; vLLM to 0.33.0 and SGLang to 0.5.23 read. The kernels were not run.
#include "src/backends/common.h"
#include "src/backends/registry.h"
#include "src/backends/sglang_kimi_k3.h"

namespace mxfp4 {

namespace {

RowOrder up_gate_pairs(const Model&) { return {1, true}; }

Parameters flashinfer_trtllm_parameters(const Names& names) {
  return both(names, {.layout = TrtllmCodes{}, .shape = code_rows},
              {.layout = TrtllmScales{}, .dtype = Dtype::F8_E4M3, .torch_dtype = "float8_e4m3fn", .shape = scale_rows},
              {.layout = TrtllmBias{}, .dtype = Dtype::F32, .torch_dtype = "float32", .shape = bias_rows});
}

std::vector<Constant> gpt_oss_vectors(const Model& m) {
  return swiglu(m, "gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit");
}
std::vector<Constant> clamp_only(const Model& m) {
  if (m.activation.limit == 0) return {};
  return {{"gemm1_clamp_limit", m.activation.limit}};
}

Backend vllm_flashinfer_trtllm(bool i128) {
  return {.name = "flashinfer-trtllm",
          .engine = "vllm",
          .layout_version = i128 ? "i128" : "i256",
          .gpu = "SM10x",
          .summary = "FlashInfer trtllm-gen, bf16 or mxfp8 activations",
          .multiple = {256, i128 ? 128 : 256},
          .kernel = &kernel_format("flashinfer-trtllm"),
          .w13_order = up_gate_pairs,
          .parameters = flashinfer_trtllm_parameters(vllm_names),
          .releases = i128 ? Range{"0.27.0", ""} : Range{"", "0.26.0"},
          .libraries = {{"flashinfer", "0.6.10 on", "converter bytes equal"}},
          .requires_ = {{"moe_backend", "flashinfer_trtllm or flashinfer_trtllm_afp8"}}};
}

Backend sglang_flashinfer_trtllm(bool i128) {
  Backend b = vllm_flashinfer_trtllm(i128);
  b.engine = "sglang";
  b.takes = is_not_deepseek_v4;
  b.parameters = flashinfer_trtllm_parameters(sglang_names);
  b.releases = i128 ? Range{"0.5.17", ""} : Range{"", "0.5.16"};
  b.libraries = {{"flashinfer", "0.6.11 on", "converter bytes equal"}};
  b.requires_ = {{"moe_runner_backend", "flashinfer_mxfp4"}};
  b.constants = gpt_oss_vectors;
  return b;
}

/// SGLang's method for GPT-OSS, which also loads Kimi-K3, gives the kernel biases of zero if the model has none.
std::vector<Constant> zero_biases(const Model& m) {
  auto all = gpt_oss_vectors(m);
  if (m.bias) return all;
  all.push_back({"w13_weight_bias", 0, [](int64_t experts, LayerSize s) { return Dims{experts, 2 * s.intermediate}; }});
  all.push_back({"w2_weight_bias", 0, [](int64_t experts, LayerSize s) { return Dims{experts, s.hidden}; }});
  return all;
}

Backend sglang_flashinfer_trtllm_ones() {
  Backend b = sglang_flashinfer_trtllm(true);
  b.layout_version = "i128-ones";
  b.takes = is_neither_kimi_k3_nor_deepseek_v4;
  pad_scales_with_ones(b);
  b.constants = zero_biases;
  b.tested = "converter bytes equal (0.5.17 to 0.5.23, on a CPU)";
  return b;
}

Backend sglang_flashinfer_trtllm_kimi_k3() {
  Backend b = kimi_k3_from_0_5_23(sglang_flashinfer_trtllm(true), "i128-k3");
  b.constants = zero_biases;
  return b;
}

Backend sglang_flashinfer_trtllm_deepseek() {
  Backend b = sglang_flashinfer_trtllm(true);
  b.takes = is_deepseek_v4;
  b.summary = "FlashInfer trtllm-gen, bf16 or mxfp8 activations; DeepSeek-V4";
  b.multiple = {128, 128};
  b.refuse = refuse_unless_128;
  b.parameters = flashinfer_trtllm_parameters(sglang_inv_names);
  b.constants = clamp_only;
  b.releases = {};
  return b;
}

std::string refuse_hidden(const Model&, LayerSize size) {
  if (size.hidden % 128 == 0) return {};
  return fmt::format("hidden {} must be a multiple of 128, since it is not padded", size.hidden);
}

/// Pads the intermediate size, scales with 1.0: for sizes that i128 refuses.
Backend sglang_deepseek_padded() {
  Backend b = sglang_flashinfer_trtllm_deepseek();
  b.layout_version = "i128-ones";
  b.refuse = refuse_hidden;
  pad_scales_with_ones(b);
  b.releases = {"0.5.21", ""};
  return b;
}

}  // namespace

Backends flashinfer_trtllm = {vllm_flashinfer_trtllm(true),
                              vllm_flashinfer_trtllm(false),
                              sglang_flashinfer_trtllm_ones(),
                              sglang_flashinfer_trtllm_kimi_k3(),
                              kimi_k3_to_0_5_22(sglang_flashinfer_trtllm_ones()),
                              sglang_deepseek_padded(),
                              sglang_flashinfer_trtllm(true),
                              sglang_flashinfer_trtllm_deepseek(),
                              sglang_flashinfer_trtllm(false)};

}  // namespace mxfp4
