// The nibbles of a strip, counted by bits and other digits: what a route (route.h) is found from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/layouts/modes.h"

namespace mxfp4 {

/// A bit of a nibble's number: the distances in nibbles that it moves the nibble in the input and in the output. A bit
/// that numbers the bytes of a unit whose bits are mixed has one distance only; the other is 0.
struct Bit {
  int64_t from = 0, to = 0;
};
using Ids = std::vector<int>;  // of bits: their places in a list of all
inline bool has(const Ids& ids, int id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// Sum i is of the steps whose bits are set in i.
std::vector<int64_t> sums_of(const std::vector<int64_t>& steps);

/// The nibbles of a strip: `from` is an offset in the strip, `to` in its packed bytes.
struct Numbers {
  std::vector<Bit> bits;
  bool mixes = false;                    // units mix bits in other ways than to move nibbles
  Ids gathered, stored;                  // bits of such a unit's bytes
  std::vector<int> plane;                // of each gathered byte: its number by those bits
  int64_t first = 0;                     // of a unit's nibbles in the strip
  std::vector<std::vector<Bit>> digits;  // digits that are no bits: the move of each value
};

/// Returns none if a unit's nibbles or bytes have no such bits. tiles: rows of tiles of a strip, all stored in the same
/// way.
std::optional<Numbers> numbers_of(const ModeLayout& layout, int64_t tiles);

}  // namespace mxfp4
