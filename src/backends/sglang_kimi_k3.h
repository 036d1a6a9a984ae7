// Kimi-K3 in SGLang 0.5.23 and later. The loader fills the pads of the intermediate size with zeros, including pads of
// scales. It cannot load the model if hidden is padded.
#pragma once

#include "src/backends/backend.h"
#include "src/backends/common.h"

namespace mxfp4 {

inline bool is_kimi_k3(const Model& m) { return m.family == "kimi-k3"; }
inline bool is_neither_kimi_k3_nor_deepseek_v4(const Model& m) { return !is_kimi_k3(m) && is_not_deepseek_v4(m); }

/// A backend's form for other models. SGLang up to 0.5.22 uses it for Kimi-K3 as well.
inline Backend kimi_k3_to_0_5_22(Backend b) {
  b.takes = is_kimi_k3;
  b.releases = {"0.5.17", "0.5.22"};
  return b;
}

inline std::string refuse_padded_hidden(const Model&, LayerSize size) {
  if (size.hidden % 256 == 0) return {};
  return fmt::format("hidden {} must be a multiple of 256, as in Kimi-K3", size.hidden);
}

/// b: pads scales with zeros.
inline Backend kimi_k3_from_0_5_23(Backend b, const char* layout_version) {
  b.layout_version = layout_version;
  b.takes = is_kimi_k3;
  b.refuse = refuse_padded_hidden;
  b.releases = {"0.5.23", ""};
  b.tested = "converter bytes equal (0.5.23, on a CPU)";
  return b;
}

}  // namespace mxfp4
