// Pads that repeat source values (ModeLayout::repeats), in the staged rows of a whole storage.
#pragma once

#include <vector>

#include "kernels/layouts/matrix.h"
#include "kernels/layouts/modes.h"

namespace mxfp4 {

inline int nibble_at(const uint8_t* bytes, int64_t at) { return bytes[at / 2] >> at % 2 * 4 & 15; }
inline void put_nibble(uint8_t* bytes, int64_t at, int nibble) {
  const int shift = int(at % 2) * 4;
  bytes[at / 2] = uint8_t((bytes[at / 2] & 0xF0 >> shift) | nibble << shift);
}

/// Writes the repeated values.
void fill_repeats(const std::vector<Repeat>& repeats, int64_t row_bytes, uint8_t* rows);
/// Counts the nibbles that differ from those that they should repeat. Then writes the matrix's pads in their places.
void take_repeats(const std::vector<Repeat>& repeats, const MutableMatrix& m, int64_t row_bytes, uint8_t* rows,
                  PadReport& report);

}  // namespace mxfp4
