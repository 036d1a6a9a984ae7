// FlashInfer's CUTLASS mixed-input MoE on SM90 (W4A16), as vLLM and SGLang feed it. FlashInfer changed the bytes twice
// under the same function names, and no kernel detects a mismatch. Layout v1 is 0.6.10 to 0.6.15.post1, 0.6.16.post3,
// 0.6.16.post4 and 0.6.17. Layout v2 is 0.6.16 to 0.6.16.post2 and 0.6.18 or later. w13 is [up; gate], biases stay
// BF16.
//
// vLLM pads hidden and intermediate to 128 with zeros. SGLang's layer pads GPT-OSS's hidden to 256, then its method
// pads both sizes to 128. Pad scales along hidden are 0x7F (1.0), the initial value of the buffers; pad scales along
// intermediate are 0x00. In the corner that both pads share, v1-corner and v2-corner have 0x00. There v1 and v2 have
// 0x7F in w2, with codes of zero. For DeepSeek-V4 SGLang pads nothing, refuses sizes that are no multiples of 128 and
// names the scales ..._scale_inv. Source: FlashInfer to 0.6.18rc7, vLLM 4e88d854, SGLang 01a6f276 and b26729f22; v1 and
// v2 byte-checked on an H200; FlashInfer to 0.7.2.post1, vLLM to 0.33.0 and SGLang to 0.5.23 read.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

constexpr const char* fits_v1 = "0.6.10 to 0.6.15.post1, 0.6.16.post3, 0.6.16.post4, 0.6.17";
constexpr const char* fits_v2 = "0.6.16 to 0.6.16.post2, 0.6.18 on";

Dims scales_v1(int64_t n, int64_t k) { return {k / 128, n * 4}; }
Dims scales_v2(int64_t n, int64_t k) { return {n / 64, k / 128, 16, 16}; }

Parameters flashinfer_cutlass_parameters(const Names& names, bool v2, PadBytes pad) {
  const Parameter v1_scales = {.layout = FlashinferSm90V1Scales{}, .shape = scales_v1, .pad = pad};
  const Parameter v2_scales = {.layout = FlashinferSm90V2Scales{}, .shape = scales_v2, .pad = pad};
  return both(names, {.layout = v2 ? Layout(FlashinferSm90V2Codes{}) : FlashinferSm90V1Codes{}, .shape = code_rows},
              v2 ? v2_scales : v1_scales, bf16_bias());
}

Parameters gpt_oss_parameters(bool v2, uint8_t corner) {
  Parameters out = flashinfer_cutlass_parameters(sglang_names, v2, {.row = 0x00, .column = 0x7F});
  out[size_t(Role::w2)][size_t(Part::scales)].pad = {.row = 0x7F, .column = 0x00, .corner = corner};
  return out;
}

std::vector<Constant> swiglu_vectors(const Model& m) {
  return swiglu(m, "swiglu_alpha", "swiglu_beta", "swiglu_limit");
}

Backend flashinfer_cutlass_backend(bool v2) {
  return {.name = "flashinfer-cutlass",
          .engine = "vllm",
          .layout_version = v2 ? "v2" : "v1",
          .gpu = "SM90",
          .summary = "FlashInfer CUTLASS W4A16, bf16 activations",
          .multiple = {128, 128},
          .kernel = &kernel_format(v2 ? "flashinfer-sm90-v2" : "flashinfer-sm90-v1"),
          .w13_order = up_gate_halves,
          .parameters = flashinfer_cutlass_parameters(vllm_names, v2, {}),
          .releases = v2 ? Range{"0.29.0", ""} : Range{"0.26.0", "0.28.0"},
          .libraries = {{"flashinfer", v2 ? fits_v2 : fits_v1, "converter bytes equal"}},
          .requires_ = {{"moe_backend", "flashinfer_cutlass"}}};
}

/// Before 0.28.0 vLLM's converter for models in halves has no FlashInfer CUTLASS.
Backend vllm_v1(bool pairs) {
  Backend b = flashinfer_cutlass_backend(false);
  b.takes = pairs ? is_gpt_oss_like : has_halves;
  if (!pairs) b.releases = {"0.28.0", "0.28.0"};
  return b;
}

Backend sglang_flashinfer_cutlass(bool v2, bool deepseek) {
  Backend b = flashinfer_cutlass_backend(v2);
  b.engine = "sglang";
  b.takes = deepseek ? is_deepseek_v4 : is_not_deepseek_v4;
  b.parameters = deepseek ? flashinfer_cutlass_parameters(sglang_inv_names, v2, {}) : gpt_oss_parameters(v2, 0x7F);
  if (deepseek) {
    b.summary = "FlashInfer CUTLASS W4A16, bf16 activations; DeepSeek-V4";
    b.refuse = refuse_unless_128;
  } else {
    b.multiple = {256, 128};
  }
  b.releases = v2 ? Range{"0.5.19", ""} : Range{"", "0.5.18"};
  b.requires_ = {{"moe_runner_backend", "flashinfer_mxfp4"}};
  b.constants = swiglu_vectors;
  return b;
}

Backend sglang_corner(bool v2) {
  Backend b = sglang_flashinfer_cutlass(v2, false);
  b.layout_version = v2 ? "v2-corner" : "v1-corner";
  b.parameters = gpt_oss_parameters(v2, 0x00);
  b.tested = "converter bytes equal";
  return b;
}

}  // namespace

Backends flashinfer_cutlass = {flashinfer_cutlass_backend(true),
                               vllm_v1(true),
                               vllm_v1(false),
                               sglang_corner(true),
                               sglang_flashinfer_cutlass(true, false),
                               sglang_flashinfer_cutlass(true, true),
                               sglang_corner(false),
                               sglang_flashinfer_cutlass(false, false),
                               sglang_flashinfer_cutlass(false, true)};

}  // namespace mxfp4
