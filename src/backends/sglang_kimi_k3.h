// Kimi-K3 in SGLang 0.5.23 and later: the loader fills the pads of the intermediate size with zeros, those of scales
// too, and cannot load where hidden is padded.
#pragma once

#include "src/backends/backend.h"
#include "src/backends/common.h"

namespace mxfp4 {

inline constexpr Range sglang_with_zero_pads = {"0.5.23", ""};
inline constexpr Range sglang_before_zero_pads = {"0.5.17", "0.5.22"};

inline bool is_kimi_k3(const Model& m) { return m.family == "kimi-k3"; }
inline bool is_neither_kimi_k3_nor_deepseek_v4(const Model& m) { return !is_kimi_k3(m) && is_not_deepseek_v4(m); }
inline std::string refuse_padded_hidden(const Model&, LayerSize size) {
  if (size.hidden % 256 == 0) return {};
  return fmt::format("hidden {} must be a multiple of 256, as Kimi-K3's is", size.hidden);
}

}  // namespace mxfp4
