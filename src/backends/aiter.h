// What both AITER backends share: tiles of 16 x 16 bytes, CDNA4 scales, F32 biases in halves, sizes padded to 256.
//
// vLLM pads some sizes to 128 only (layout version 2). Where that is no multiple of 256 AITER's scale shuffle leaves
// memory that it does not write, so such sizes are refused.
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

inline std::string refuse_unless_256(const Model&, LayerSize size) {
  const LayerSize made = {round_up(size.hidden, 128), round_up(size.intermediate, 128)};
  if (made.hidden % 256 == 0 && made.intermediate % 256 == 0) return {};
  return fmt::format("the engine makes hidden {} and intermediate {} of it, and AITER's scales leave bytes unset there",
                     made.hidden, made.intermediate);
}

}  // namespace mxfp4
