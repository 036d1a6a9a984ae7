// Marlin W4A16: vLLM's and SGLang's kernel for every NVIDIA GPU from SM80 on (vLLM: SM75).
//
// Both engines pad hidden to 256 and intermediate to 128 and transform with the same functions, so codes and bias
// agree. They differ in three places: vLLM keeps GPT-OSS's gate and up rows in pairs as loaded, SGLang always makes
// halves, gate first; pad bytes of scales are 0x00 in vLLM and 0x7F (1.0) in SGLang since #33500 (2026-08-06), which
// allocates its buffers with ones; the bias parameters have other names.
// Source: vLLM main 48ebd6f2f and SGLang main b26729f22, byte-checked against both engines' kernels.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Dims codes_shape(int64_t n, int64_t k) { return {k / 16, n * 2}; }
Dims scales_shape(int64_t n, int64_t k) { return {k / group, n}; }

Parameters parameters(const Names& names, uint8_t pad) {
  return both(names, {.layout = MarlinCodes{}, .dtype = Dtype::I32, .torch_dtype = "int32", .shape = codes_shape},
              {.layout = MarlinScales{},
               .dtype = Dtype::F8_E8M0,
               .torch_dtype = "float8_e8m0fnu",
               .shape = scales_shape,
               .pad = {pad, pad, 0}},
              {.layout = MarlinBias{}, .dtype = Dtype::BF16, .torch_dtype = "bfloat16", .shape = bias_rows});
}

}  // namespace

Backends marlin = {
    {.name = "marlin",
     .engine = "vllm",
     .layout_version = "1",
     .gpu = "SM75, SM80 and later",
     .summary = "Marlin W4A16, bf16 activations",
     .multiple = {256, 128},
     .kernel = &kernel_format("marlin"),
     .w13_order = loaded_order,
     .parameters = parameters(vllm_names, 0x00),
     .fits = {{"vllm", "0.21 to 0.27.1", "converter bytes equal (main of 2026-07-26)"}},
     .requires_ = {{"moe_backend", "marlin"}, {"unset:VLLM_MARLIN_INPUT_DTYPE", ""}}},
    {.name = "marlin",
     .engine = "sglang",
     .layout_version = "1",
     .gpu = "SM80 and later",
     .summary = "Marlin W4A16, bf16 activations",
     .multiple = {256, 128},
     .kernel = &kernel_format("marlin"),
     .w13_order = gate_up_halves,
     .parameters = parameters(sglang_names, 0x7F),
     .fits = {{"sglang", "0.5.17 on (scale pad byte 0x7F)", "converter bytes equal (main of 2026-08-16)"}},
     .requires_ = {{"moe_runner_backend", "marlin"}},
     .halves = true},
};

}  // namespace mxfp4
