// Common parts of several backends: names of parameters, shapes, views, row orders and refusals.
#pragma once

#include "src/backends/backend.h"

namespace mxfp4 {

/// The names of scales in SGLang's FlashInfer methods for DeepSeek-V4, which keep the names used for loading.
inline constexpr Names sglang_inv_names = {{"w13_weight", "w2_weight"},
                                           {"w13_weight_scale_inv", "w2_weight_scale_inv"},
                                           {"w13_weight_bias", "w2_weight_bias"}};

/// The parameters of w13 and w2, if they differ only in their names.
inline Parameters both(const Names& names, Parameter codes, Parameter scales, Parameter bias) {
  Parameters out;
  for (size_t role : {0, 1}) {
    codes.name = names.codes[role];
    scales.name = names.scales[role];
    bias.name = names.bias[role];
    out[role] = {codes, scales, bias};
  }
  return out;
}

/// Shapes of one expert: all rows in order, unless the layout says otherwise.
inline Dims code_rows(int64_t n, int64_t k) { return {n, k / 2}; }
inline Dims scale_rows(int64_t n, int64_t k) { return {n, k / group}; }
inline Dims bias_rows(int64_t n, int64_t) { return {n}; }
inline Dims one_value(int64_t, int64_t) { return {}; }

/// Canonical codes, and biases that no kernel permutes.
inline Parameter plain_codes() { return {.shape = code_rows}; }
inline Parameter bf16_bias() { return {.dtype = Dtype::BF16, .torch_dtype = "bfloat16", .shape = bias_rows}; }
inline Parameter f32_residual(const char* name) {
  return {.name = name, .dtype = Dtype::F32, .torch_dtype = "float32", .shape = one_value};
}
inline Parameter f32_bias() { return {.dtype = Dtype::F32, .torch_dtype = "float32", .shape = bias_rows}; }

inline Dims contiguous_strides(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// Exchanges the last two axes over the same memory.
inline View transposed(const char* torch_dtype, const Dims& stored) {
  View v{torch_dtype, stored, contiguous_strides(stored)};
  std::swap(v.shape.end()[-1], v.shape.end()[-2]);
  std::swap(v.strides.end()[-1], v.strides.end()[-2]);
  return v;
}

/// Pads scales with the 1.0 that SGLang's buffers begin with.
inline void pad_scales_with_ones(Backend& b) {
  for (Role role : roles) b.parameters[size_t(role)][size_t(Part::scales)].pad = {.row = 0x7F, .column = 0x7F};
}

/// Row orders of w13.
inline RowOrder gate_up_halves(const Model&) { return {}; }
inline RowOrder up_gate_halves(const Model&) { return {0, true}; }
inline RowOrder gate_up_pairs(const Model&) { return {1, false}; }

/// The models that SGLang loads by its methods for DeepSeek-V4: FP8 checkpoints with MXFP4 experts.
inline bool is_deepseek_v4(const Model& m) { return m.family.starts_with("deepseek-v4") || m.family == "ling"; }
inline bool is_not_deepseek_v4(const Model& m) { return !is_deepseek_v4(m); }
/// Models for which vLLM requests MXFP8 activations.
inline bool asks_for_mxfp8(const Model& m) { return m.family.starts_with("deepseek-v4"); }
inline bool asks_for_bf16(const Model& m) { return !asks_for_mxfp8(m); }
inline bool is_gpt_oss_like(const Model& m) { return m.pairs; }
inline bool has_halves(const Model& m) { return !m.pairs; }
inline bool has_method_of_quark(const Model& m) { return m.method == "quark"; }
/// vLLM has two conversion functions: one for GPT-OSS and Quark, and one for all others, which supports some backends
/// only in later releases.
inline bool is_converted_as_gpt_oss(const Model& m) { return m.pairs || has_method_of_quark(m); }
inline bool is_not_converted_as_gpt_oss(const Model& m) { return !is_converted_as_gpt_oss(m); }

/// Models whose layers vLLM converts without padding them.
inline bool is_never_padded(const Model& m) { return m.method == "compressed-tensors"; }

/// For backends that cannot pad.
inline std::string refuse_unless_128(const Model&, LayerSize size) {
  if (size.hidden % 128 == 0 && size.intermediate % 128 == 0) return {};
  return fmt::format("hidden {} and intermediate {} must be multiples of 128, since nothing is padded", size.hidden,
                     size.intermediate);
}

/// The SwiGLU constants under an engine's names; without a limit the engine passes none of them.
inline std::vector<Constant> swiglu(const Model& m, const char* alpha, const char* beta, const char* limit) {
  const Activation& a = m.activation;
  if (a.limit == 0) return {};
  return {{alpha, a.alpha}, {beta, a.beta}, {limit, a.limit}};
}

}  // namespace mxfp4
