// FlashInfer's W4A8 form of the SM90 CUTLASS MoE ("Humming", 0.6.18). SGLang has it from 0.5.19 on as an option; vLLM
// up to 0.33.0 does not have it. The form is lossy: its kernel has twelve scales per expert and matrix, a base and its
// next eleven doublings. Groups with a smaller scale get the base, and their codes are rounded to match; minus zero
// becomes zero. The changes are counted, printed and kept in the manifest, and cannot be undone.
//
// Codes and scales are then stored in FlashInfer's own layouts, w13 as [up; gate]. w13_residual and w2_residual are
// half the base of each expert. SGLang keeps the kernel's factor, which is 64 times the residual. SGLang pads GPT-OSS
// only; its pad scales repeat the expert's first scale, so that no range changes. Source: FlashInfer 0.6.18rc7
// (preprocess_moe_weights_for_sm90_mixed_gemm_humming), byte-checked as host code; SGLang 0.5.19 to 0.5.23 read.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Dims flashinfer_humming_scales_shape(int64_t n, int64_t k) { return {n / 64, k / 128, 16, 16}; }

View view_of_words(const Dims& stored) {
  const Dims shape = {stored[0], stored[1], stored[2], 16, 4};
  return {"int32", shape, contiguous_strides(shape)};
}

Parameters flashinfer_humming_parameters(const Names& names, const char* w13_residual, const char* w2_residual) {
  Parameters p =
      both(names, {.layout = FlashinferSm90Fp4Fp8Codes{}, .shape = code_rows},
           {.layout = FlashinferSm90V2Scales{}, .shape = flashinfer_humming_scales_shape, .view = view_of_words},
           bf16_bias());
  p[size_t(Role::w13)][size_t(Part::residual)] = f32_residual(w13_residual);
  p[size_t(Role::w2)][size_t(Part::residual)] = f32_residual(w2_residual);
  return p;
}

Backend vllm_flashinfer_humming() {
  return {.name = "flashinfer-humming",
          .engine = "vllm",
          .layout_version = "1",
          .gpu = "SM90",
          .summary = "FlashInfer CUTLASS W4A8, fp8 activations; lossy",
          .multiple = {128, 128},
          .kernel = &kernel_format("flashinfer-humming"),
          .w13_order = up_gate_halves,
          .parameters = flashinfer_humming_parameters(vllm_names, "w13_residual", "w2_residual"),
          .releases = no_release,
          .libraries = {{"flashinfer", "0.6.18 on", "converter bytes equal"}},
          .requires_ = {},
          .refuse = refuse_unless_128,
          .rewrite = humming_rewrite};
}

RewriteLoss rewrite_64(std::span<uint8_t> codes, std::span<uint8_t> scales) {
  RewriteLoss loss = humming_rewrite(codes, scales);
  loss.residual *= 64;
  return loss;
}

Dims no_dimensions(int64_t, LayerSize) { return {}; }
std::vector<Constant> constants(const Model& m) {
  auto all = swiglu(m, "swiglu_alpha", "swiglu_beta", "swiglu_limit");
  all.push_back({"humming_fc2_act_scale", 1, no_dimensions});
  return all;
}

Backend sglang_flashinfer_humming(const Names& names) {
  Backend b = vllm_flashinfer_humming();
  b.engine = "sglang";
  b.kernel = &kernel_format("flashinfer-humming-64");
  b.parameters = flashinfer_humming_parameters(names, "w13_humming_residual_scale", "w2_humming_residual_scale");
  b.releases = {"0.5.19", ""};
  b.requires_ = {{"moe_runner_backend", "flashinfer_mxfp4"}, {"flashinfer_mxfp4_moe_precision", "fp8"}};
  b.constants = constants;
  b.rewrite = rewrite_64;
  return b;
}

Backend sglang_flashinfer_humming_deepseek() {
  Backend b = sglang_flashinfer_humming(sglang_inv_names);
  b.summary = "FlashInfer CUTLASS W4A8, fp8 activations; lossy; DeepSeek-V4";
  b.takes = is_deepseek_v4;
  return b;
}

/// SGLang's layer rounds hidden up to 256 before its method pads both sizes to 128.
Backend sglang_padded() {
  Backend b = sglang_flashinfer_humming(sglang_names);
  b.multiple = {256, 128};
  b.takes = is_not_deepseek_v4;
  b.refuse = nullptr;
  b.first_scale_pads = true;
  return b;
}

}  // namespace

Backends flashinfer_humming = {vllm_flashinfer_humming(), sglang_padded(), sglang_flashinfer_humming_deepseek()};

}  // namespace mxfp4
