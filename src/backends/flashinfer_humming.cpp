// FlashInfer's W4A8 form of the SM90 CUTLASS MoE ("Humming", 0.6.18; no vLLM to 0.33.0 has it). It is lossy: its kernel
// knows twelve scales per expert and matrix, a base and its next eleven doublings, so groups with a smaller scale take
// the base and their codes are rounded to match, and minus zero becomes zero. What that changed is counted, printed and
// kept in the manifest; there is no way back. Codes and scales then go into FlashInfer's own layouts, w13 as [up;
// gate]. w13_residual and w2_residual are half the base of each expert; the kernel's factor is 64 times that. Nothing
// is padded. Source: FlashInfer 0.6.18rc7 (preprocess_moe_weights_for_sm90_mixed_gemm_humming), byte-checked as host
// code.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Dims scales_shape(int64_t n, int64_t k) { return {n / 64, k / 128, 16, 16}; }
Dims one_value(int64_t, int64_t) { return {}; }

View words(const Dims& stored) {
  const Dims shape = {stored[0], stored[1], stored[2], 16, 4};
  return {"int32", shape, contiguous_strides(shape)};
}

Parameters parameters() {
  Parameters p = both(vllm_names, {.layout = FlashinferSm90Fp4Fp8Codes{}, .shape = code_rows},
                      {.layout = FlashinferSm90V2Scales{}, .shape = scales_shape, .view = words}, bf16_bias());
  for (size_t role : {0, 1})
    p[role][size_t(Part::residual)] = {.name = role ? "w2_residual" : "w13_residual",
                                       .dtype = Dtype::F32,
                                       .torch_dtype = "float32",
                                       .shape = one_value};
  return p;
}

}  // namespace

Backends flashinfer_humming = {
    {.name = "flashinfer-humming",
     .engine = "vllm",
     .layout_version = "1",
     .gpu = "SM90",
     .summary = "FlashInfer CUTLASS W4A8, fp8 activations; lossy",
     .multiple = {128, 128},
     .kernel = &kernel_format("flashinfer-humming"),
     .w13_order = up_gate_halves,
     .parameters = parameters(),
     .releases = no_release,
     .libraries = {{"flashinfer", "0.6.18 on", "converter bytes equal"}},
     .requires_ = {},
     .refuse = refuse_unless_128,
     .rewrite = humming_rewrite},
};

}  // namespace mxfp4
