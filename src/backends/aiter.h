// What both AITER backends share: tiles of 16 x 16 bytes, CDNA4 scales, F32 biases in halves, sizes padded to 256.
#pragma once

#include "src/backends/common.h"

namespace mxfp4 {

/// The bias rows stay in halves, whatever order the shuffles make of the others.
inline Parameters aiter_parameters(const Names& names) {
  Parameter bias = f32_bias();
  bias.order = RowOrder{};
  return both(names, {.layout = Aiter16x16Codes{}, .shape = code_rows}, {.layout = Cdna4Scales{}, .shape = scale_rows},
              bias);
}

}  // namespace mxfp4
