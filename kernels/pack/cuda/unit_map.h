// A layout by modes in the form for a GPU: units of 1, 2, 4 or 8 stored bytes. Each digit of a unit's number moves the
// unit's source and its destination, and both places are sums of these moves. So two short tables give the places of
// every unit: one for the low digits, one for the high digits.
//
//     unit i   begins at row and byte low[i % lows] + high[i / lows] of the storage's rows; `to` is its destination
//     byte j   of its source is row[j] rows and byte[j] bytes from there
//     stored   bit t is bit (t + by) modulo its bits of the gathered ones, for the turn whose mask has t
//
// Low digits move least in the packed matrix, so that neighbouring units are stored together. High digits begin with
// those that move least in the source, so that the rest of a cache line is used soon.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/hd.h"
#include "kernels/layouts/modes.h"

namespace mxfp4 {

struct alignas(16) UnitPlace {
  uint32_t row = 0, byte = 0, to = 0;
  friend MXFP4_HD constexpr UnitPlace operator+(UnitPlace a, UnitPlace b) {
    return {a.row + b.row, a.byte + b.byte, a.to + b.to};
  }
};

/// A kernel parameter: the pointers are the device's.
struct UnitMap {
  const UnitPlace *low = nullptr, *high = nullptr;
  const uint32_t* copy = nullptr;  // places of a unit's copies, from its first place
  uint32_t lows = 0, copies = 0;
  uint32_t count = 0;  // of units, each once
  int bytes = 0;       // of a unit
  uint32_t row[8] = {}, byte[8] = {};
  bool in_row = true;       // they follow one another
  uint8_t is_repeated = 0;  // bit j: byte j is of a copy within the unit; read from packed bytes is the last
  uint8_t last[8] = {};     // which that is
  int turns = 0;
  struct Turn {
    uint64_t mask;
    int by;
  } turn[64] = {};
  MXFP4_HD UnitPlace place(uint32_t i) const { return low[i % lows] + high[i / lows]; }
};

/// The map of a layout and the tables that it points to.
struct Units {
  explicit Units(const ModeLayout& layout);
  Units(const Units&) = delete;
  UnitMap map;
  std::vector<UnitPlace> low, high;
  std::vector<uint32_t> copy;
};

}  // namespace mxfp4
