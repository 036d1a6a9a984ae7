// A layout in the form in which it is packed, and given in a layout file: its modes.
//
// A mode is one digit of a stored bit's number. Modes m = 0, 1, .. with c0, c1, .. values count the stored bits of one
// expert's matrix, the first mode fastest:
//
//     stored bit d0 + c0 * (d1 + c1 * (d2 + ..))  =  source bit (row, bit) = steps0[d0] + steps1[d1] + steps2[d2] + ..
//
// Bit 8b + i of a row, and of the stored matrix, is bit i of byte b (0: the lowest). Source rows are those of the
// storage, in row order and with all pads, as for every layout. marlin.codes of 5888 rows x 1536 bytes:
//
//     [4,0,1] [2,0,32] [2,8,0] [2,0,4]   a word: bits of a code; bytes 0 and 4; rows 0 and 8; low and high nibble
//     [4,16,0] [4,0,8] [8,1,0]           the words of a tile: warps, columns, rows
//     [92,64,0] [192,0,64]               tiles down the rows, then along them
//
// In a mode [count, rows, bits], digit d moves the source by d * rows and d * bits. A mode that moves nothing stores
// `count` copies of the bits that the other modes count; the copies must be equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/layouts/layout.h"

namespace mxfp4 {

struct Step {
  int64_t row = 0, bit = 0;
  friend constexpr bool operator==(const Step&, const Step&) = default;
  friend constexpr Step operator+(Step a, Step b) { return {a.row + b.row, a.bit + b.bit}; }
  friend constexpr Step operator-(Step a, Step b) { return {a.row - b.row, a.bit - b.bit}; }
};

/// One step: digit d moves d times as far. Else one for each of `count` digits.
struct Mode {
  int64_t count = 1;
  std::vector<Step> steps;
  bool is_even() const { return steps.size() == 1; }
  bool moves_nothing() const;
  Step at(int64_t d) const { return is_even() ? Step{d * steps[0].row, d * steps[0].bit} : steps[size_t(d)]; }
  friend bool operator==(const Mode&, const Mode&) = default;
};
using Modes = std::vector<Mode>;

/// Rows, bytes of a row, and bytes of one expert that a layout from a file may have.
inline constexpr int64_t max_side = int64_t(1) << 20, max_storage = int64_t(1) << 26;

/// Nibbles of a row of pads that repeat nibbles of a real row; places are in the storage.
struct Repeat {
  int64_t row, at, from_row, from_at, count;
};

/// A mode, or a factor of one, at its place.
struct Counted {
  Mode mode;
  int64_t weight;  // in the stored bit's number
};

/// Checked modes. Their first digits count the bits of a unit. It is a run of a row's bytes, or 1, 2, 4 or 8 stored
/// bytes whose bits come from as many whole bytes. Else it is a run of nibbles, and `unit` counts nibbles.
class ModeLayout {
 public:
  /// Throws std::invalid_argument with the reason if the modes have no unit. from_file: also if the modes, apart from
  /// copies, are no bijection of the storage. Sizes are then limited: a wrong file must not take all memory.
  ModeLayout(Shape storage, Modes modes, bool from_file = true);

  Shape storage;
  Modes modes;
  int64_t copies = 1;  // of every source bit
  int grain = 8;       // bits of what `unit` counts: a byte, or a nibble
  int64_t unit = 0;
  bool runs = false;
  std::vector<Step> gather;     // of each byte of a unit that does not run; one with copies gathers some bytes again
  std::vector<int> bit;         // bit i of such a unit is gathered bit bit[i]
  std::vector<Counted> rest;    // the digits that count units
  std::vector<Counted> copy;    // those that count copies of units
  std::vector<Repeat> repeats;  // in the order of rows

  /// The source of a stored bit.
  Step source(int64_t stored_bit) const;

 private:
  bool take_run(int64_t multiple);
  bool take_whole_bytes();
  void take_bits(const std::vector<Step>& bits);
};

/// The source of a stored bit.
Step source_of(const Modes& modes, int64_t stored_bit);

/// Appends `m`. If `m` continues the steps of the last mode, the two become one mode.
void append(Modes& modes, Mode m);

/// Finds the fewest modes with these steps, which may begin anywhere. A digit is split off as soon as the remaining
/// steps do not depend on the digit. In each direction the least step of a mode is 0.
Modes factor(std::vector<Step> steps);

/// The same digits as the fewest modes.
Modes fewest(const Modes& modes);

}  // namespace mxfp4
