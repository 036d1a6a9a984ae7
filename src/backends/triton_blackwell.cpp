// triton_kernels on SM10x and, in vLLM from 0.32.0 on, on SM12x, with the same bytes. Codes stay in rows, each padded
// to 128 bytes and viewed transposed. Scales go into 128x4 atoms, padded to 128 rows and 8 groups. Rows stay as loaded,
// biases become F32. vLLM and SGLang pad intermediate to 64 and never pad hidden. SGLang's scale buffers are filled
// with 0x7F (1.0, #33500), which remains in that padding. The bytes are those of triton_kernels 3.5 to 3.8 (early vLLM
// kept codes strided). Source: triton_kernels' BlackwellMXValueLayout and BlackwellMXScaleLayout, byte-checked as host
// code; not run.
#include "src/backends/registry.h"
#include "src/backends/triton.h"

namespace mxfp4 {

namespace {

Dims triton_blackwell_value_shape(int64_t n, int64_t k) { return {n, storage<TritonBlackwellCodes>({n, k / 2}).b}; }
Dims scale_shape(int64_t n, int64_t k) {
  const Shape s = storage<TritonBlackwellScales>({n, k / group});
  return {s.n / 128, s.b / 4, 2, 256};
}

/// triton_kernels has one axis for experts and blocks of rows.
View flat_blocks(const Dims& stored) {
  const Dims shape = {1, stored[0] * stored[1], stored[2], 2, 256};
  return {"uint8", shape, contiguous_strides(shape)};
}

Json triton_blackwell_value_object(int64_t experts, Shape padded) {
  return triton_object("BlackwellMXValueLayout", experts, padded.b * 2, padded.n);
}
Json triton_blackwell_scale_object(int64_t experts, Shape padded) {
  return triton_object("BlackwellMXScaleLayout", experts, padded.b, padded.n);
}

Backend vllm_triton_blackwell() {
  return {.name = "triton-blackwell",
          .engine = "vllm",
          .layout_version = "1",
          .gpu = "SM10x, SM12x",
          .summary = "triton_kernels, bf16 activations",
          .multiple = {1, 64},
          .kernel = &kernel_format("triton-blackwell"),
          .w13_order = loaded_order,
          .parameters = both(vllm_names,
                             {.layout = TritonBlackwellCodes{},
                              .shape = triton_blackwell_value_shape,
                              .view = u8_transposed,
                              .object = triton_blackwell_value_object},
                             {.layout = TritonBlackwellScales{},
                              .shape = scale_shape,
                              .view = flat_blocks,
                              .object = triton_blackwell_scale_object},
                             f32_bias()),
          .releases = {"0.26.0", ""},
          .no_kernel = {{"SM12x", {"", "0.31.0"}}},
          .libraries = {{"triton_kernels", "3.5 to 3.8", "converter bytes equal"}},
          .requires_ = vllm_triton_settings()};
}

Backend sglang_triton_blackwell() {
  Backend b = vllm_triton_blackwell();
  b.engine = "sglang";
  b.gpu = "SM10x";
  for (size_t role : {0, 1}) {
    b.parameters[role][size_t(Part::bias)].name = sglang_names.bias[role];
    b.parameters[role][size_t(Part::scales)].pad = {0x7F, 0x7F, 0x00};
  }
  b.releases = {"0.5.11", ""};
  b.no_kernel = {};
  b.requires_ = {{"moe_runner_backend", "triton_kernel"}};
  return b;
}

}  // namespace

Backends triton_blackwell = {vllm_triton_blackwell(), sglang_triton_blackwell()};

}  // namespace mxfp4
