// The common form of both AITER backends: tiles of 16 x 16 bytes, CDNA4 scales, F32 biases in halves, sizes padded to
// 256.
//
// vLLM pads some sizes to 128 only (layout version 2). For other sizes than multiples of 256, AITER's scale shuffle
// leaves part of its output unwritten, so such sizes are refused.
#pragma once

#include "src/backends/common.h"

namespace mxfp4 {

/// The bias rows stay in halves; the shuffles reorder only the other tensors.
inline Parameters aiter_parameters(const Names& names) {
  Parameter bias = f32_bias();
  bias.order = RowOrder{};
  return both(names, {.layout = Aiter16x16Codes{}, .shape = code_rows}, {.layout = Cdna4Scales{}, .shape = scale_rows},
              bias);
}

/// What differs between aiter-a16w4 and aiter-w4a4. Both engines have the same values.
struct AiterKernel {
  const char *name, *summary, *moe_backend;  // the last is vLLM's name for it
  RowOrder (*w13_order)(const Model& model);
};

inline Backend aiter_row(const AiterKernel& kernel, const Engine& engine, const char* first,
                         std::vector<Setting> settings) {
  return {.name = kernel.name,
          .engine = engine.name,
          .layout_version = "1",
          .gpu = "gfx950",
          .summary = kernel.summary,
          .multiple = {256, 256},
          .kernel = &kernel_format(kernel.name),
          .w13_order = kernel.w13_order,
          .parameters = aiter_parameters(*engine.names),
          .releases = {first, ""},
          .libraries = {{"aiter", "e404860 (2026-08-22)", "converter bytes equal"}},
          .requires_ = std::move(settings)};
}
inline Backend aiter_vllm(const AiterKernel& kernel) {
  return aiter_row(kernel, engine::vllm, "0.26.0", {{"moe_backend", kernel.moe_backend}, {"VLLM_ROCM_USE_AITER", "1"}});
}
inline Backend aiter_sglang(const AiterKernel& kernel) {
  return aiter_row(kernel, engine::sglang, "0.5.16", {{"moe_runner_backend", "aiter"}, {"SGLANG_USE_AITER", "1"}});
}

inline std::string refuse_unless_256(const Model&, LayerSize size) {
  const LayerSize made = {round_up(size.hidden, 128), round_up(size.intermediate, 128)};
  if (made.hidden % 256 == 0 && made.intermediate % 256 == 0) return {};
  return fmt::format("the engine makes hidden {} and intermediate {} of it, and AITER's scales leave bytes unset there",
                     made.hidden, made.intermediate);
}

/// Quark's models, whose halves vLLM converts by the function for GPT-OSS.
inline bool is_quark(const Model& m) { return has_halves(m) && is_converted_as_gpt_oss(m); }

/// Layout version 2: models with SiLU, which have halves, are padded to 128 in some sizes.
inline Backend aiter_version_2(const AiterKernel& kernel, LayerSize multiple, const char* first) {
  Backend b = aiter_vllm(kernel);
  b.layout_version = std::string("2");  // for the literal alone GCC 12 gives a false warning
  b.multiple = multiple;
  b.takes = has_halves;
  b.refuse = refuse_unless_256;
  b.releases = {first, ""};
  return b;
}

}  // namespace mxfp4
