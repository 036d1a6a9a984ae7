// The common part of the Triton backends: the description of a triton_kernels tensor in the manifest.
#pragma once

#include "src/backends/common.h"

namespace mxfp4 {

inline View u8_transposed(const Dims& stored) { return transposed("uint8", stored); }

/// logical: columns (codes or scales) and rows as triton_kernels names them, [experts, K, N].
inline Json triton_object(const char* layout_class, int64_t experts, int64_t k, int64_t n) {
  return {{"class", layout_class}, {"mx_axis", 1}, {"logical_shape", {experts, k, n}}};
}

/// A parameter that stays in rows; the engine's tensor is a transposed view.
inline Json strided_codes_object(int64_t experts, Shape padded) {
  return triton_object("StridedLayout", experts, padded.b * 2, padded.n);
}
inline Json strided_scales_object(int64_t experts, Shape padded) {
  return triton_object("StridedLayout", experts, padded.b, padded.n);
}

/// vLLM's "triton" reorders halves for its fused activation; "triton_unfused" takes rows as loaded.
inline std::vector<Setting> vllm_triton_settings() {
  return {{"moe_backend", "triton", is_gpt_oss_like}, {"moe_backend", "triton_unfused", has_halves}};
}

}  // namespace mxfp4
