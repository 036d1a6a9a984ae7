// Marlin W4A16: vLLM's and SGLang's kernel for every NVIDIA GPU from SM80 on (vLLM: SM75).
//
// Both engines pad hidden to 256 and intermediate to 128 and transform with the same functions, so codes and bias
// agree. They differ in three places: vLLM keeps GPT-OSS's gate and up rows in pairs as loaded, SGLang always makes
// halves, gate first; pad bytes of scales are 0x00 in vLLM and 0x7F (1.0) in SGLang since #33500 (2026-08-06), which
// allocates its buffers with ones; the bias parameters have other names.
// Source: vLLM main 48ebd6f2f and SGLang main b26729f22, byte-checked against both engines' kernels.
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Sizes codes_shape(int64_t n, int64_t k) { return {k / 16, n * 2}; }
Sizes scales_shape(int64_t n, int64_t k) { return {k / group, n}; }
Sizes bias_shape(int64_t n, int64_t) { return {n}; }

Parameter codes(const char* name) { return {name, MarlinCodes{}, Dtype::I32, "int32", codes_shape}; }
Parameter scales(const char* name, uint8_t pad) {
  return {name, MarlinScales{}, Dtype::F8_E8M0, "float8_e8m0fnu", scales_shape, {pad, pad, 0}};
}
Parameter bias(const char* name) { return {name, MarlinBias{}, Dtype::BF16, "bfloat16", bias_shape}; }

RowOrder halves(const Model&) { return {}; }

}  // namespace

const Backend marlin_vllm = {
    "marlin",
    "vllm",
    "1",
    "SM75, SM80 and later",
    "Marlin W4A16, bf16 activations",
    {256, 128},
    loaded_order,
    {{codes("w13_weight"), scales("w13_weight_scale", 0x00), bias("w13_bias")},
     {codes("w2_weight"), scales("w2_weight_scale", 0x00), bias("w2_bias")}},
    {{"vllm", "0.21 to 0.27.1", "converter bytes equal (main of 2026-07-26)"}},
    {{"moe_backend", "marlin"}, {"unset:VLLM_MARLIN_INPUT_DTYPE", ""}},
};

const Backend marlin_sglang = {
    "marlin",
    "sglang",
    "1",
    "SM80 and later",
    "Marlin W4A16, bf16 activations",
    {256, 128},
    halves,
    {{codes("w13_weight"), scales("w13_weight_scale", 0x7F), bias("w13_weight_bias")},
     {codes("w2_weight"), scales("w2_weight_scale", 0x7F), bias("w2_weight_bias")}},
    {{"sglang", "0.5.17 on (scale pad byte 0x7F)", "converter bytes equal (main of 2026-08-16)"}},
    {{"moe_runner_backend", "marlin"}},
};

}  // namespace mxfp4
