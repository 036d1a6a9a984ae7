// FlashInfer's CUTLASS MXFP4 x MXFP8 MoE on SM10x and SM12x. Codes stay as they are, w13 as [up; gate]; scales go into
// 128x4 atoms and keep their shape, biases stay BF16. Engines view codes as int64 and scales as int32 only when they
// call the kernel. Padding is as in FlashInfer's SM90 form: vLLM pads both sizes to 128. SGLang pads GPT-OSS's hidden
// to 256, and nothing for DeepSeek-V4, whose scales it names ..._scale_inv. SGLang's pad scales are 0x7F along hidden,
// and 0x00 along intermediate and in the corner that both pads share.
// Source: FlashInfer to 0.6.18rc7 (block_scale_interleave, byte-checked as host code), vLLM 446179f8, SGLang b26729f22.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Parameters flashinfer_cutlass_mxfp8_parameters(const Names& names, PadBytes pad) {
  return both(names, plain_codes(), {.layout = Scales128x4{}, .shape = scale_rows, .pad = pad}, bf16_bias());
}

std::vector<Constant> vectors(const Model& m) {
  auto all = swiglu(m, "swiglu_alpha", "swiglu_beta", "swiglu_limit");
  all.push_back({"mxfp4_weight_global_scale", 1});
  return all;
}

Backend vllm_flashinfer_cutlass_mxfp8(const char* first_release, bool (*takes)(const Model&)) {
  return {.name = "flashinfer-cutlass-mxfp8",
          .engine = "vllm",
          .layout_version = "1",
          .gpu = "SM10x, SM12x",
          .summary = "FlashInfer CUTLASS W4A8, mxfp8 activations",
          .multiple = {128, 128},
          .kernel = &kernel_format("flashinfer-cutlass-sm100"),
          .w13_order = up_gate_halves,
          .parameters = flashinfer_cutlass_mxfp8_parameters(vllm_names, {}),
          .releases = {first_release, ""},
          .libraries = {{"flashinfer", "0.6.10 on", "converter bytes equal"}},
          .requires_ = {{"moe_backend", "flashinfer_cutlass_afp8"}},
          .takes = takes};
}

/// Layout version 1 exchanges the two pad values of w2's scales. Version 2 has 0x7F in the corner of pad rows and pad
/// columns. Neither has an effect, because the codes there are zero.
Backend sglang_flashinfer_cutlass_mxfp8(bool deepseek) {
  Backend b = vllm_flashinfer_cutlass_mxfp8("0.26.0", deepseek ? is_deepseek_v4 : is_not_deepseek_v4);
  b.engine = "sglang";
  b.parameters = deepseek ? flashinfer_cutlass_mxfp8_parameters(sglang_inv_names, {})
                          : flashinfer_cutlass_mxfp8_parameters(sglang_names, {0x00, 0x7F, 0x00});
  if (deepseek) {
    b.summary = "FlashInfer CUTLASS W4A8, mxfp8 activations; DeepSeek-V4";
    b.refuse = refuse_unless_128;
  } else {
    b.multiple = {256, 128};
  }
  b.releases = {"0.5.16", ""};
  b.requires_ = {{"moe_runner_backend", "flashinfer_mxfp4"}};
  b.constants = vectors;
  return b;
}

Backend sglang_gpt_oss(const char* layout_version, uint8_t corner) {
  Backend b = sglang_flashinfer_cutlass_mxfp8(false);
  b.layout_version = layout_version;
  b.parameters[size_t(Role::w2)][size_t(Part::scales)].pad = {.row = 0x7F, .column = 0x00, .corner = corner};
  return b;
}

}  // namespace

Backends flashinfer_cutlass_mxfp8 = {vllm_flashinfer_cutlass_mxfp8("0.26.0", is_gpt_oss_like),
                                     vllm_flashinfer_cutlass_mxfp8("0.28.0", has_halves),
                                     sglang_gpt_oss("3", 0x00),
                                     sglang_gpt_oss("2", 0x7F),
                                     sglang_flashinfer_cutlass_mxfp8(false),
                                     sglang_flashinfer_cutlass_mxfp8(true)};

}  // namespace mxfp4
