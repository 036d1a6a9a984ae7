// FlashInfer's CuTe-DSL MXFP8 x MXFP4 MoE on SM100 (cute_dsl_fused_moe_mxfp8_mxfp4). w13 is in blocks of 64 rows, up
// first. Codes are plain; scales are in 128x4 atoms, and the kernel checks their view (32, 4, N/128, 4, K/128,
// experts). The kernel requires multiples of 128 and supports no bias; no engine is known to pad for it. There is no
// golden vector: bytes follow FlashInfer's own description. Row order, MMA view and strides of 0.6.18rc7 were
// byte-checked; the kernel was not run.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

RowOrder blocks_of_64(const Model&) { return {64, true}; }

View mma_view(const Dims& stored) {
  const int64_t rows = stored[1] / 128, columns = stored[2] / 4;
  return {"uint8", {32, 4, rows, 4, columns, stored[0]}, {16, 4, 512 * columns, 1, 512, 512 * columns * rows}};
}

std::string refuse(const Model& m, LayerSize size) {
  return m.bias ? "the kernel supports no bias" : refuse_unless_128(m, size);
}

}  // namespace

Backends flashinfer_cutedsl = {
    {.name = "flashinfer-cutedsl",
     .engine = "vllm",
     .layout_version = "1",
     .gpu = "SM100",
     .summary = "FlashInfer CuTe-DSL W4A8, mxfp8 activations",
     .multiple = {128, 128},
     .kernel = &kernel_format("flashinfer-cutedsl"),
     .w13_order = blocks_of_64,
     .parameters =
         both(vllm_names, plain_codes(), {.layout = Scales128x4{}, .shape = scale_rows, .view = mma_view}, bf16_bias()),
     .releases = no_release,
     .libraries = {{"flashinfer", "0.6.18", "description read"}},
     .requires_ = {},
     .refuse = refuse},
};

}  // namespace mxfp4
