// AITER's MXFP4 x MXFP4 MoE on gfx950, for Quark's W4A4 checkpoints. As aiter-a16w4, but w13 stays [gate; up]. The
// scale shuffle (e8m0_shuffle) leaves memory it does not write; sizes padded to 256 leave it none. Source: AITER
// e404860 of 2026-08-22 (shuffle_weight, e8m0_shuffle, byte-checked as host code), vLLM 446179f8, SGLang b26729f22. The
// kernels were not run.
#include "src/backends/aiter.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Backend backend(const Engine& engine, const char* first, std::vector<Setting> settings) {
  return {.name = "aiter-w4a4",
          .engine = engine.name,
          .layout_version = "1",
          .gpu = "gfx950",
          .summary = "AITER W4A4, mxfp4 activations",
          .multiple = {256, 256},
          .kernel = &kernel_format("aiter-w4a4"),
          .w13_order = gate_up_halves,
          .parameters = aiter_parameters(*engine.names),
          .releases = {first, ""},
          .libraries = {{"aiter", "e404860 (2026-08-22)", "converter bytes equal"}},
          .requires_ = std::move(settings)};
}

Backend vllm() {
  return backend(engine::vllm, "0.26.0", {{"moe_backend", "aiter_mxfp4_mxfp4"}, {"VLLM_ROCM_USE_AITER", "1"}});
}

Backend vllm_1() {
  Backend b = vllm();
  b.releases = {"0.26.0", "0.31.0"};
  return b;
}

Backend vllm_2() {
  Backend b = vllm();
  b.layout_version = "2";
  b.multiple = {256, 128};
  b.refuse = refuse_unless_256;
  b.releases = {"0.32.0", ""};
  return b;
}

Backend sglang() {
  return backend(engine::sglang, "0.5.16", {{"moe_runner_backend", "aiter"}, {"SGLANG_USE_AITER", "1"}});
}

}  // namespace

Backends aiter_w4a4 = {vllm_2(), vllm_1(), sglang()};

}  // namespace mxfp4
