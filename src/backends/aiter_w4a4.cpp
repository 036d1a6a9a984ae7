// AITER's MXFP4 x MXFP4 MoE on gfx950, for Quark's W4A4 checkpoints. As aiter-a16w4, but w13 stays [gate; up]. The
// scale shuffle (e8m0_shuffle) leaves memory it does not write; sizes padded to 256 leave it none. Source: AITER
// e404860 of 2026-08-22 (shuffle_weight, e8m0_shuffle, byte-checked as host code), vLLM 446179f8, SGLang b26729f22. The
// kernels were not run.
#include "src/backends/aiter.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Backend backend(const char* engine, const Names& names, Fit fit, std::vector<Setting> settings) {
  return {.name = "aiter-w4a4",
          .engine = engine,
          .layout_version = "1",
          .gpu = "gfx950",
          .summary = "AITER W4A4, mxfp4 activations",
          .multiple = {256, 256},
          .kernel = &kernel_format("aiter-w4a4"),
          .w13_order = gate_up_halves,
          .parameters = aiter_parameters(names),
          .fits = {fit, {"aiter", "e404860 (2026-08-22)", "converter bytes equal"}},
          .requires_ = std::move(settings)};
}

}  // namespace

Backends aiter_w4a4 = {backend("vllm", vllm_names, {"vllm", "0.26.0 on", "sources read"},
                               {{"moe_backend", "aiter_mxfp4_mxfp4"}, {"VLLM_ROCM_USE_AITER", "1"}}),
                       backend("sglang", sglang_names, {"sglang", "0.5.16, 0.5.17", "sources read"},
                               {{"moe_runner_backend", "aiter"}, {"SGLANG_USE_AITER", "1"}})};

}  // namespace mxfp4
