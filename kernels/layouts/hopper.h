// The common part of FlashInfer's SM90 mixed-input kernels (0.6.16 and from 0.6.18) and triton_kernels' Hopper values.
// A word holds eight codes of a wgmma fragment, arranged so that a shift and a mask yield BF16 numbers.
#pragma once

#include "kernels/layouts/layout.h"

namespace mxfp4 {

/// A tile is 16 rows x 64 columns. Word 16r + 4p + t gathers rows r and r+8 at bytes 8p+t and 8p+t+4.
struct HopperTile {
  static constexpr int tile_n = 16, tile_b = 32;
  static constexpr Byte at(int w, int i) { return {w / 16 + i % 2 * 8, w / 4 % 4 * 8 + w % 4 + i / 2 * 4}; }
};

/// The even columns' codes make the low half of a word, the odd ones the high half. A half shifted left by 0, 3 or 6
/// and masked with 0x81C0 is code 0, 1 or 2 as a BF16 scaled by 2^-126. The bits of code 3 fill the remaining places.
constexpr int hopper_bit(int i) {
  constexpr int half[16] = {16, 17, 18, 8, 9, 10, 0, 1, 2, 19, 25, 26, 11, 24, 27, 3};
  return half[i % 16] + i / 16 * 4;
}

}  // namespace mxfp4
