// The common part of both DeepGEMM backends: scales as int32 words, column-major.
#pragma once

#include "src/backends/common.h"

namespace mxfp4 {

inline Dims word_columns(int64_t n, int64_t k) { return {k / 128, n}; }
inline View word_rows(const Dims& stored) { return transposed("int32", stored); }

inline Parameter packed_scales(Layout layout) {
  return {.layout = layout, .dtype = Dtype::I32, .torch_dtype = "int32", .shape = word_columns, .view = word_rows};
}

}  // namespace mxfp4
