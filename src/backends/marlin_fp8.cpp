// Marlin with FP8 activations: vLLM's VLLM_MARLIN_INPUT_DTYPE=fp8, on SM89 and SM12x only. Padding, names and row order
// are Marlin's; tiles are 32 x 32. The kernel reads E2M1 codes as E4M3, which makes them 2^-6 too small. Therefore
// every scale byte, including pads, is 6 larger, and 249 is the largest scale byte of a model. The tensors do not show
// whether they are for FP8 or bf16 activations.
// Source: vLLM main 48ebd6f2f (gptq_marlin_repack with is_a_8bit, marlin_permute_scales), byte-checked on an H200.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Dims marlin_fp8_codes_shape(int64_t n, int64_t k) { return {k / 16, n * 2}; }
Dims marlin_fp8_scales_shape(int64_t n, int64_t k) { return {k / group, n}; }

}  // namespace

Backends marlin_fp8 = {
    {.name = "marlin-fp8",
     .engine = "vllm",
     .layout_version = "1",
     .gpu = "SM89, SM12x",
     .summary = "Marlin W4A8, fp8 activations",
     .multiple = {256, 128},
     .kernel = &kernel_format("marlin-fp8"),
     .w13_order = loaded_order,
     .parameters =
         both(vllm_names,
              {.layout = MarlinA8Codes{}, .dtype = Dtype::I32, .torch_dtype = "int32", .shape = marlin_fp8_codes_shape},
              {.layout = MarlinA8Scales{},
               .dtype = Dtype::F8_E8M0,
               .torch_dtype = "float8_e8m0fnu",
               .shape = marlin_fp8_scales_shape,
               .add = 6},
              {.layout = MarlinBias{}, .dtype = Dtype::BF16, .torch_dtype = "bfloat16", .shape = bias_rows}),
     .releases = {"0.26.0", ""},
     .tested = "converter bytes equal (main of 2026-07-26)",
     .requires_ = {{"moe_backend", "marlin"}, {"VLLM_MARLIN_INPUT_DTYPE", "fp8"}}},
};

}  // namespace mxfp4
