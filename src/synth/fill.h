// The bytes of a random checkpoint. Every byte follows from the seed, its tensor's name and its place in the tensor, so
// that blocks can be made in any order and by any thread.
#pragma once

#include <cstdint>

#include "src/synth/describe.h"

namespace mxfp4 {

/// Bytes made at a time: block b of a tensor is its bytes [b * fill_block, (b + 1) * fill_block).
inline constexpr int64_t fill_block = 1 << 20;

/// One in this many groups of MXFP4 codes is all zero, and only such a group has the scale byte 0.
inline constexpr int64_t zero_group_period = 1024;

/// Writes the first `bytes` bytes of a block of `checkpoint.tensors[tensor]`.
///
/// MXFP4 codes are uniform, which makes their mean square 8.5625. Scales are near the power of two that gives the
/// values the mean square 1 / columns. Most are 0 to 3 below that power; the tails reach 8 below and above. Floats have
/// a random sign and mantissa and one of four neighbouring exponents.
void fill(const SynthCheckpoint& checkpoint, int64_t tensor, uint64_t seed, int64_t block, uint8_t* out, int64_t bytes);

}  // namespace mxfp4
