// Humming W4A16 on SM90, bf16 activations: vLLM's first choice there for DeepSeek-V4's class since 0.32.0, SGLang's
// where it is asked for. Nothing is lost: codes are Marlin's words, scales stay E8M0. The library itself pads, at the
// end of the whole matrix, rows to 256 and columns to 128; its pads of scales are 1.0, of all else 0. vLLM first pads
// intermediate to 64, gate and up each, with zeros. GPT-OSS's pairs stay as loaded.
//
// The order of a word's codes depends on the library: up to 0.1.16 (layout version 1) it is that of wgmma's registers,
// from 0.1.17 on (2) that of mma's on every GPU up to SM90. On SM100 and later the compiler decides, so no row is for
// them. With fp16 activations scales have another form, with fp8 ones codes are rewritten.
// Source: humming-kernels 0.1.12, 0.1.17 and 0.1.19, whose conversion was run, its one CUDA kernel compiled for the
// host; vLLM 0.33.0 and SGLang 0.5.19 to 0.5.23 read.
#include "src/backends/common.h"
#include "src/backends/registry.h"

namespace mxfp4 {

namespace {

Dims codes_shape(int64_t n, int64_t k) { return {round_up(k, 128) / 16, round_up(n, 256) * 2}; }
Dims scales_shape(int64_t n, int64_t k) { return {round_up(k, 128) / group, round_up(n, 256)}; }
Dims bias_shape(int64_t n, int64_t) { return {round_up(n, 256)}; }

Parameters parameters(const Layout& codes) {
  return both(vllm_names, {.layout = codes, .dtype = Dtype::I32, .torch_dtype = "int32", .shape = codes_shape},
              {.layout = HummingScales{},
               .dtype = Dtype::F8_E8M0,
               .torch_dtype = "float8_e8m0fnu",
               .shape = scales_shape,
               .pad = {.row = 0x00, .column = 0x00, .storage = 0x7F}},
              {.layout = HummingBias{}, .dtype = Dtype::BF16, .torch_dtype = "bfloat16", .shape = bias_shape});
}

Backend vllm() {
  return {.name = "humming",
          .engine = "vllm",
          .layout_version = "2",
          .gpu = "SM90",
          .summary = "Humming W4A16, bf16 activations",
          .multiple = {1, 64},
          .kernel = &kernel_format("humming"),
          .w13_order = loaded_order,
          .parameters = parameters(HummingCodes{}),
          .releases = {"0.32.0", ""},
          .tested = "converter bytes equal (host)",
          .libraries = {{"humming-kernels", "0.1.17 on", "converter bytes equal to 0.1.19 (host)"}},
          .requires_ = {{"moe_backend", "humming"}, {"unset:VLLM_HUMMING_INPUT_QUANT_CONFIG", ""}}};
}

/// Its FP8 method takes a rank's intermediate size only in whole blocks of 128, so that it needs no pads.
Backend sglang() {
  return {.name = "humming",
          .engine = "sglang",
          .layout_version = "1",
          .gpu = "SM90",
          .summary = "Humming W4A16, bf16 activations; DeepSeek-V4",
          .multiple = {1, 1},
          .kernel = &kernel_format("humming-wgmma"),
          .w13_order = gate_up_halves,
          .parameters = parameters(HummingWgmmaCodes{}),
          .releases = {"0.5.19", ""},
          .tested = "converter bytes equal (host)",
          .libraries = {{"humming-kernels", "0.1.12 to 0.1.16", "converter bytes equal to 0.1.12 (host)"}},
          .requires_ = {{"moe_runner_backend", "humming"}},
          .takes = is_deepseek_v4,
          .refuse = refuse_unless_128};
}

}  // namespace

Backends humming = {vllm(), sglang()};

}  // namespace mxfp4
