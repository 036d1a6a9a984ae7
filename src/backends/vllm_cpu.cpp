// vLLM's CPU MoE (AVX-512, AMX): blocks of 32 rows, columns outermost within a block; rows as loaded, both sizes padded
// to 32, biases F32. The engine's tensors keep the sizes of the unpadded parameters, from which its kernel takes those
// of the layer. The manifest does not have these sizes; the loader sets them (_entries.py). Source:
// convert_weight_packed and convert_scale_packed of vLLM 0.26.0 and 0.33.0, both run on a CPU.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Dims vllm_cpu_codes_shape(int64_t n, int64_t k) { return {n / 32, k / 2, 32}; }
Dims vllm_cpu_scales_shape(int64_t n, int64_t k) { return {n / 32, k / group, 32}; }

Backend vllm_cpu_backend(const char* first_release, bool (*takes)(const Model&)) {
  return {.name = "vllm-cpu",
          .engine = "vllm",
          .layout_version = "1",
          .gpu = "CPU (AVX-512, AMX)",
          .summary = "vLLM CPU W4A16, bf16 activations",
          .multiple = {32, 32},
          .kernel = &kernel_format("vllm-cpu"),
          .w13_order = loaded_order,
          .parameters = both(vllm_names, {.layout = VllmCpuCodes{}, .shape = vllm_cpu_codes_shape},
                             {.layout = VllmCpuScales{}, .shape = vllm_cpu_scales_shape}, f32_bias()),
          .releases = {first_release, ""},
          .requires_ = {{"moe_backend", "cpu"}},
          .takes = takes};
}

}  // namespace

Backends vllm_cpu = {vllm_cpu_backend("0.26.0", is_converted_as_gpt_oss),
                     vllm_cpu_backend("0.30.0", is_not_converted_as_gpt_oss)};

}  // namespace mxfp4
