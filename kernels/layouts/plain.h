// The canonical rows unchanged, in the backend's row order and padding. Used for codes, scales and biases that a
// backend reads as the checkpoint stores them: FlashInfer cutlass SM100 and CuTe-DSL codes, DeepGEMM codes,
// transformers' scales. Also used for every bias that no kernel permutes; BF16 rows are 2 bytes, F32 rows 4.
#pragma once

#include "kernels/layouts/layout.h"

namespace mxfp4 {

struct Plain : PlainRows<1> {
  static constexpr const char* name = "plain";
};

using PlainLayouts = LayoutList<Plain>;

}  // namespace mxfp4
