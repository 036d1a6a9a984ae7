// The nibbles of a strip, counted by digits: what strips.h moves, and what a route (route.h) is found from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/layouts/modes.h"

namespace mxfp4 {

/// How far something moves a nibble, in nibbles: in the strip, and in its packed bytes.
struct Bit {
  int64_t from = 0, to = 0;
};
using List = std::vector<Bit>;  // of a digit's values

/// The sums of a value of each list, the first list fastest.
List sums_of(std::span<const List> lists, Bit first = {});
/// Sum i is of the steps whose bits are set in i.
std::vector<int64_t> sums_of(const std::vector<int64_t>& steps);

/// A strip is rows that are packed alike: as few as are enough for a strip.
struct Numbers {
  int64_t rows = 0;             // of a strip
  std::vector<int64_t> strips;  // the place of each in the packed matrix, in nibbles
  int64_t run = 0;              // nibbles that stay together; 0: the bits of the layout's units are mixed
  std::vector<List> lists;      // of the digits that count the runs or units, as they are packed
};

Numbers numbers_of(const ModeLayout& layout);

}  // namespace mxfp4
