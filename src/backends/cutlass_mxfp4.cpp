// vLLM's own CUTLASS W4A4 on SM100 and SM12x, its choice there for compressed-tensors and Quark. Activations become
// MXFP4 as well. Codes and rows stay as published, gate then up. Scales are stored in 128x4 atoms and keep their shape.
// The method for compressed-tensors pads nothing; it fails if hidden or a rank's intermediate size is no multiple of
// 128. The method for Quark pads to 128. Source: vLLM 0.33.0 (swizzle_mxfp4_scales, run on a CPU; the same function and
// preparation in 0.26.0).
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

bool is_compressed_tensors(const Model& m) { return has_halves(m) && is_never_padded(m); }
bool is_of_quark(const Model& m) { return has_halves(m) && m.family == "quark"; }

Backend cutlass_mxfp4_backend(Range releases, bool (*takes)(const Model&)) {
  return {.name = "cutlass-mxfp4",
          .engine = "vllm",
          .layout_version = "1",
          .gpu = "SM10x, SM12x",
          .summary = "CUTLASS W4A4, mxfp4 activations",
          .multiple = {128, 128},
          .kernel = &kernel_format("cutlass-mxfp4"),
          .w13_order = gate_up_halves,
          .parameters = both(vllm_names, plain_codes(), {.layout = Scales128x4{}, .shape = scale_rows}, bf16_bias()),
          .releases = releases,
          .tested = "converter bytes equal",
          .requires_ = {},
          .takes = takes,
          .refuse = refuse_unless_128};
}

}  // namespace

Backends cutlass_mxfp4 = {cutlass_mxfp4_backend({"0.26.0", ""}, is_compressed_tensors),
                          cutlass_mxfp4_backend({"0.32.0", ""}, is_of_quark)};

}  // namespace mxfp4
