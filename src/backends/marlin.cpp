// Marlin W4A16: vLLM's kernel for every NVIDIA GPU from SM75 on, SGLang's from SM90 on, below which it raises.
//
// Both engines pad hidden to 256 and intermediate to 128 and transform with the same functions, so codes and bias
// agree. They differ in three places. vLLM keeps GPT-OSS's gate and up rows in pairs as loaded; SGLang always makes
// halves, gate first. Pad scales are 0x00 in vLLM and 0x7F (1.0) in SGLang, whose buffers are filled with ones from
// #33500 (2026-08-06) on. The bias parameters have different names. From 0.5.22 on, on SM90 only, SGLang pads the
// intermediate size of DeepSeek-V4's class to 64 with scales of 0x00 (i64). If hidden is padded too, the layout version
// is i64-corner. From 0.5.23 on SGLang's pads for Kimi-K3 are zeros (k3). vLLM pads nothing for compressed-tensors and
// AutoRound. Source: vLLM main 48ebd6f2f and SGLang main b26729f22, byte-checked against both engines' kernels; vLLM to
// 0.33.0 and SGLang to 0.5.23 read, the latter's Python converter run.
#include "src/backends/common.h"
#include "src/backends/registry.h"
#include "src/backends/sglang_kimi_k3.h"

namespace mxfp4 {

namespace {

Dims marlin_codes_shape(int64_t n, int64_t k) { return {k / 16, n * 2}; }
Dims marlin_scales_shape(int64_t n, int64_t k) { return {k / group, n}; }

Parameters marlin_parameters(const Names& names, uint8_t pad) {
  return both(names,
              {.layout = MarlinCodes{}, .dtype = Dtype::I32, .torch_dtype = "int32", .shape = marlin_codes_shape},
              {.layout = MarlinScales{},
               .dtype = Dtype::F8_E8M0,
               .torch_dtype = "float8_e8m0fnu",
               .shape = marlin_scales_shape,
               .pad = {pad, pad, 0}},
              {.layout = MarlinBias{}, .dtype = Dtype::BF16, .torch_dtype = "bfloat16", .shape = bias_rows});
}

Backend marlin_backend(const Engine& engine, uint8_t pad) {
  return {.name = "marlin",
          .engine = engine.name,
          .layout_version = "1",
          .gpu = "SM90 and later",
          .summary = "Marlin W4A16, bf16 activations",
          .multiple = {256, 128},
          .kernel = &kernel_format("marlin"),
          .w13_order = gate_up_halves,
          .parameters = marlin_parameters(*engine.names, pad)};
}

Backend vllm_marlin() {
  Backend b = marlin_backend(engine::vllm, 0x00);
  b.gpu = "SM75, SM80 and later";
  b.w13_order = loaded_order;
  b.releases = {"0.26.0", ""};
  b.tested = "converter bytes equal (main of 2026-07-26)";
  b.requires_ = {{"moe_backend", "marlin"}, {"unset:VLLM_MARLIN_INPUT_DTYPE", ""}};
  return b;
}

std::string refuse_unless_tiles(const Model&, LayerSize size) {
  if (size.hidden % 128) return fmt::format("hidden {} is no multiple of 128; vLLM pads nothing here", size.hidden);
  if (size.intermediate % 64 == 0) return {};
  return fmt::format("intermediate {} is no multiple of 64; vLLM pads nothing here", size.intermediate);
}

/// The methods for compressed-tensors and AutoRound make the same bytes with another function, which does not pad.
Backend vllm_unpadded() {
  Backend b = vllm_marlin();
  b.layout_version = "unpadded";
  b.multiple = {1, 1};
  b.tested = "sources read";
  b.takes = is_never_padded;
  b.refuse = refuse_unless_tiles;
  return b;
}

Backend sglang_marlin() {
  Backend b = marlin_backend(engine::sglang, 0x7F);
  b.takes = is_neither_kimi_k3_nor_deepseek_v4;
  b.releases = {"0.5.17", ""};
  b.tested = "converter bytes equal (main of 2026-08-16)";
  b.requires_ = {{"moe_runner_backend", "marlin"}};
  b.halves = true;
  b.needs_whole_groups = true;  // check_moe_marlin_supports_layer, in each of these releases
  return b;
}

Backend sglang_marlin_kimi_k3() {
  Backend b = kimi_k3_from_0_5_23(sglang_marlin(), "k3");
  b.parameters = marlin_parameters(*engine::sglang.names, 0x00);
  return b;
}

/// Its method for an FP8 checkpoint also refuses SM100.
Backend sglang_marlin_deepseek() {
  Backend b = sglang_marlin();
  b.gpu = "SM90, SM12x";
  b.takes = is_deepseek_v4;
  return b;
}

/// Pad scales along hidden are the ones of the buffers; those along intermediate are added later as zeros. In the
/// corner that both pads share in w2, this form has 0x7F; the engine has zeros (i64-corner).
Backend sglang_i64() {
  Backend b = sglang_marlin_deepseek();
  b.layout_version = "i64";
  b.gpu = "SM90";
  b.summary = "Marlin W4A16, bf16 activations; DeepSeek-V4";
  b.multiple = {256, 64};
  b.parameters[size_t(Role::w13)][size_t(Part::scales)].pad = {.row = 0x00, .column = 0x7F};
  b.parameters[size_t(Role::w2)][size_t(Part::scales)].pad = {.row = 0x7F, .column = 0x00};
  b.releases = {"0.5.22", ""};
  b.tested = "converter bytes equal (0.5.23, host)";
  return b;
}

/// No published model has such a hidden size. SGLang's conversion supports it, but SGLang's weight loader raises an
/// error before.
bool is_deepseek_v4_with_padded_hidden(const Model& m) {
  return is_deepseek_v4(m) && !m.layers.empty() && m.layers.front().hidden % 256 != 0;
}

Backend sglang_i64_corner() {
  Backend b = sglang_i64();
  b.layout_version = "i64-corner";
  b.summary = "Marlin W4A16, bf16 activations; DeepSeek-V4 if hidden is no multiple of 256";
  b.parameters[size_t(Role::w2)][size_t(Part::scales)].pad.corner = 0x00;
  b.takes = is_deepseek_v4_with_padded_hidden;
  return b;
}

}  // namespace

Backends marlin = {vllm_unpadded(),
                   vllm_marlin(),
                   sglang_marlin(),
                   sglang_marlin_kimi_k3(),
                   kimi_k3_to_0_5_22(sglang_marlin()),
                   sglang_i64_corner(),
                   sglang_i64(),
                   sglang_marlin_deepseek()};

}  // namespace mxfp4
