// Engines that keep the checkpoint's weights except for padding: no row or column moves. vLLM up to 0.31.0 emulates
// Quark's experts on NVIDIA GPUs in the rows that it loads. Both sizes are padded to 32. SGLang's triton_kernels below
// SM90 read GPT-OSS's rows transposed. SGLang pads intermediate to 64, scales with 1.0, and converts biases to F32.
// Source: vLLM 0.26.0 to 0.31.0 read; SGLang 0.5.23's conversion run on a CPU, 0.5.17 read.
#include "src/backends/registry.h"
#include "src/backends/triton.h"

namespace mxfp4 {

namespace {

bool is_quark_without_biases(const Model& m) { return has_method_of_quark(m) && !m.bias; }

Backend canonical_backend(const Engine& engine, const char* gpu, const char* summary, LayerSize multiple,
                          Parameters parameters) {
  return {.name = "canonical",
          .engine = engine.name,
          .layout_version = "1",
          .gpu = gpu,
          .summary = summary,
          .multiple = multiple,
          .kernel = &kernel_format("canonical"),
          .w13_order = loaded_order,
          .parameters = std::move(parameters)};
}

Backend vllm_canonical() {
  Backend b = canonical_backend(engine::vllm, "SM75 and later", "emulation, weights as published", {32, 32},
                                both(vllm_names, plain_codes(), {.shape = scale_rows}, bf16_bias()));
  b.kernel = &kernel_format("canonical-bf16");
  b.releases = {"0.26.0", "0.31.0"};
  b.requires_ = {{"moe_backend", "emulation"}};
  b.takes = is_quark_without_biases;
  return b;
}

Backend sglang_canonical() {
  Parameter codes = plain_codes(), scales = {.shape = scale_rows, .pad = {.row = 0x7F, .column = 0x7F}};
  for (Parameter* p : {&codes, &scales}) p->view = u8_transposed;
  codes.object = strided_codes_object;
  scales.object = strided_scales_object;
  Backend b = canonical_backend(engine::sglang, "SM8x", "triton_kernels, bf16 activations, as published", {1, 64},
                                both(sglang_names, codes, scales, f32_bias()));
  b.releases = {"0.5.17", ""};
  b.tested = "converter bytes equal (0.5.23)";
  b.requires_ = {{"moe_runner_backend", "triton_kernel"}};
  b.takes = is_gpt_oss_like;
  return b;
}

}  // namespace

Backends canonical = {vllm_canonical(), sglang_canonical()};

}  // namespace mxfp4
