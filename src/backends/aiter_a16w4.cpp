// AITER's bf16 x MXFP4 MoE on gfx950. GPT-OSS's rows are de-interleaved; the shuffle then takes w13 in blocks of 16
// gate and 16 up rows, codes in tiles of 16 rows x 16 bytes, scales in CDNA4 order. Both sizes are padded to 256 with
// zeros; biases become F32 and stay [gate; up]. AITER's own test has since come to use no gate-up interleave for bf16
// activations: bytes are tied to the AITER version below. Loaders set is_shuffled and view codes as float4_e2m1fn_x2.
// Source: AITER e404860 of 2026-08-22 (shuffle_weight_a16w4, shuffle_scale_a16w4, byte-checked as host code), vLLM
// 446179f8, SGLang b26729f22. The kernels were not run.
#include "src/backends/aiter.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

RowOrder blocks_of_16(const Model&) { return {16, false}; }

Backend backend(const char* engine, const Names& names, Fit fit, std::vector<Setting> settings) {
  return {.name = "aiter-a16w4",
          .engine = engine,
          .layout_version = "1",
          .gpu = "gfx950",
          .summary = "AITER W4A16, bf16 activations",
          .multiple = {256, 256},
          .kernel = &kernel_format("aiter-a16w4"),
          .w13_order = blocks_of_16,
          .parameters = aiter_parameters(names),
          .fits = {fit, {"aiter", "e404860 (2026-08-22)", "converter bytes equal"}},
          .requires_ = std::move(settings)};
}

}  // namespace

Backends aiter_a16w4 = {backend("vllm", vllm_names, {"vllm", "0.26.0 on", "sources read"},
                                {{"moe_backend", "aiter"}, {"VLLM_ROCM_USE_AITER", "1"}}),
                        backend("sglang", sglang_names, {"sglang", "0.5.16, 0.5.17", "sources read"},
                                {{"moe_runner_backend", "aiter"}, {"SGLANG_USE_AITER", "1"}})};

}  // namespace mxfp4
