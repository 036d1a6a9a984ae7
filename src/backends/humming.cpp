// Humming on SM90. W4A16 (bf16 activations) is vLLM's first choice there for DeepSeek-V4's class from 0.32.0 on, and an
// option of SGLang. The form is lossless: codes are Marlin's words, scales stay E8M0. The library pads at the end of
// the whole matrix, rows to 256 and columns to 128; pad scales are 1.0, all other pads 0. Before that, vLLM pads
// intermediate to 64 with zeros, gate and up each. GPT-OSS's pairs stay as loaded.
//
// W4A8 has FP8 activations in groups of 128. vLLM 0.33.0 uses it for models that request MXFP8 activations, such as
// DeepSeek-V4. It is lossy and rewrites values in the same way as flashinfer-humming. Codes have words of their own,
// and weight_scale_2 is half the base of each expert. Pads of the library would change the range of an expert's scales,
// so sizes that need pads are refused.
//
// The order of a word's codes for bf16 depends on the library. Up to 0.1.16 (layout version 1) it is the order of
// wgmma's registers; from 0.1.17 on (version 2) that of mma's registers on every GPU up to SM90. On SM100 and later the
// compiler decides, so there is no backend for these GPUs. With fp16 activations scales have another form.
//
// Source: humming-kernels 0.1.12, 0.1.17 and 0.1.19, whose conversion was run, its CUDA kernels compiled for the host;
// vLLM 0.33.0 and SGLang 0.5.19 to 0.5.23 read.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Dims humming_codes_shape(int64_t n, int64_t k) { return {round_up(k, 128) / 16, round_up(n, 256) * 2}; }
Dims humming_scales_shape(int64_t n, int64_t k) { return {round_up(k, 128) / group, round_up(n, 256)}; }
Dims bias_shape(int64_t n, int64_t) { return {round_up(n, 256)}; }

Parameters humming_parameters(const Layout& codes) {
  return both(vllm_names, {.layout = codes, .dtype = Dtype::I32, .torch_dtype = "int32", .shape = humming_codes_shape},
              {.layout = HummingScales{},
               .dtype = Dtype::F8_E8M0,
               .torch_dtype = "float8_e8m0fnu",
               .shape = humming_scales_shape,
               .pad = {.row = 0x00, .column = 0x00, .storage = 0x7F}},
              {.layout = HummingBias{}, .dtype = Dtype::BF16, .torch_dtype = "bfloat16", .shape = bias_shape});
}

Backend vllm_humming() {
  return {.name = "humming",
          .engine = "vllm",
          .layout_version = "2",
          .gpu = "SM90",
          .summary = "Humming W4A16, bf16 activations",
          .multiple = {1, 64},
          .kernel = &kernel_format("humming"),
          .w13_order = loaded_order,
          .parameters = humming_parameters(HummingCodes{}),
          .releases = {"0.32.0", ""},
          .tested = "converter bytes equal (host)",
          .libraries = {{"humming-kernels", "0.1.17 on", "converter bytes equal to 0.1.19 (host)"}},
          .requires_ = {{"moe_backend", "humming"},
                        {"unset:VLLM_HUMMING_INPUT_QUANT_CONFIG", "", asks_for_bf16},
                        {"VLLM_HUMMING_INPUT_QUANT_CONFIG", R"({"dtype":"bfloat16"})", asks_for_mxfp8}}};
}

/// SGLang's FP8 method requires a rank's intermediate size in whole blocks of 128, so it needs no pads.
Backend sglang_humming() {
  return {.name = "humming",
          .engine = "sglang",
          .layout_version = "1",
          .gpu = "SM90",
          .summary = "Humming W4A16, bf16 activations; DeepSeek-V4",
          .multiple = {1, 1},
          .kernel = &kernel_format("humming-wgmma"),
          .w13_order = gate_up_halves,
          .parameters = humming_parameters(HummingWgmmaCodes{}),
          .releases = {"0.5.19", ""},
          .tested = "converter bytes equal (host)",
          .libraries = {{"humming-kernels", "0.1.12 to 0.1.16", "converter bytes equal to 0.1.12 (host)"}},
          .requires_ = {{"moe_runner_backend", "humming"}},
          .takes = is_deepseek_v4,
          .refuse = refuse_unless_128};
}

Dims fp8_codes_shape(int64_t n, int64_t k) { return {round_up(k, 128) / 64, round_up(n, 256) * 8}; }

std::string refuse_pads(const Model&, LayerSize size) {
  if (size.hidden % 256 == 0 && size.intermediate % 128 == 0) return {};
  return fmt::format(
      "hidden {} must be a multiple of 256 and intermediate {} of 128, since pads would change an expert's values",
      size.hidden, size.intermediate);
}

Backend vllm_w4a8() {
  Backend b = vllm_humming();
  b.name = "humming-w4a8";
  b.layout_version = "1";
  b.summary = "Humming W4A8, fp8 activations; lossy";
  b.multiple = {256, 128};
  b.kernel = &kernel_format("humming-w4a8");
  for (Role role : roles) {
    auto& parts = b.parameters[size_t(role)];
    parts[size_t(Part::codes)].layout = HummingFp8Codes{};
    parts[size_t(Part::codes)].shape = fp8_codes_shape;
    parts[size_t(Part::residual)] = f32_residual(role == Role::w2 ? "w2_weight_scale_2" : "w13_weight_scale_2");
  }
  b.releases = {"0.33.0", ""};
  b.requires_ = {{"moe_backend", "humming"}, {"unset:VLLM_HUMMING_INPUT_QUANT_CONFIG", ""}};
  b.libraries = {{"humming-kernels", "0.1.19", "converter bytes equal (host)"}};
  b.takes = asks_for_mxfp8;
  b.refuse = refuse_pads;
  b.rewrite = humming_rewrite;
  return b;
}

}  // namespace

Backends humming = {vllm_humming(), sglang_humming()};
Backends humming_w4a8 = {vllm_w4a8()};

}  // namespace mxfp4
