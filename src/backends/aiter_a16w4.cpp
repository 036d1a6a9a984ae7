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

Backend backend(const Engine& engine, const char* first, std::vector<Setting> settings) {
  return {.name = "aiter-a16w4",
          .engine = engine.name,
          .layout_version = "1",
          .gpu = "gfx950",
          .summary = "AITER W4A16, bf16 activations",
          .multiple = {256, 256},
          .kernel = &kernel_format("aiter-a16w4"),
          .w13_order = blocks_of_16,
          .parameters = aiter_parameters(*engine.names),
          .releases = {first, ""},
          .libraries = {{"aiter", "e404860 (2026-08-22)", "converter bytes equal"}},
          .requires_ = std::move(settings)};
}

Backend vllm() { return backend(engine::vllm, "0.26.0", {{"moe_backend", "aiter"}, {"VLLM_ROCM_USE_AITER", "1"}}); }

Backend vllm_pairs() {
  Backend b = vllm();
  b.takes = is_gpt_oss_like;
  return b;
}

Backend vllm_halves() {
  Backend b = vllm();
  b.takes = has_halves;
  b.releases = {"0.26.0", "0.27.1"};
  return b;
}

/// Models with SiLU, which have halves, are padded to 128.
Backend vllm_2() {
  Backend b = vllm();
  b.layout_version = "2";
  b.multiple = {128, 128};
  b.takes = has_halves;
  b.refuse = refuse_unless_256;
  b.releases = {"0.28.0", ""};
  return b;
}

Backend sglang() {
  return backend(engine::sglang, "0.5.16", {{"moe_runner_backend", "aiter"}, {"SGLANG_USE_AITER", "1"}});
}

}  // namespace

Backends aiter_a16w4 = {vllm_pairs(), vllm_2(), vllm_halves(), sglang()};

}  // namespace mxfp4
