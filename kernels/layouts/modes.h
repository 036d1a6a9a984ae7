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

/// Bytes that a tile stores in a row, if the modes allow that many.
inline constexpr int64_t together = 64;

/// Nibbles of a row of pads that repeat nibbles of a real row; places are in the storage.
struct Repeat {
  int64_t row, at, from_row, from_at, count;
};

/// Checked modes, cut into tiles for the drivers. Each unit of a tile gathers `unit` source bytes and rearranges their
/// bits; a unit with copies gathers some bytes again. A unit that only moves bytes within a row (`runs`) may have any
/// length. If a stored byte has nibbles of different bytes, units are runs of nibbles, and whatever counts bytes here
/// counts nibbles: `unit`, `tile.b` and all places.
class ModeLayout {
 public:
  /// Throws std::invalid_argument with the reason if the modes, apart from copies, are no bijection of the storage.
  /// Also throws if they have no unit of 1, 2, 4 or 8 bytes that consists of whole source bytes.
  /// from_file: sizes are limited, so that a wrong file cannot take all memory.
  ModeLayout(Shape storage, Modes modes, bool from_file = true);

  Shape storage;
  Modes modes;
  int64_t copies = 1;  // of every source bit
  int grain = 8;       // bits of what is counted: a byte, or a nibble
  Shape tile;
  int64_t unit = 0;
  bool runs = false;
  struct Place {
    int64_t row, byte;
    friend constexpr bool operator==(const Place&, const Place&) = default;
  };
  std::vector<Place> gather;         // of the unit's bytes, from the unit's first
  std::vector<int> bit;              // bit i of the unit is gathered bit bit[i]
  std::vector<Place> from;           // of each unit of a tile, from the tile's first byte
  std::vector<int64_t> to;           // the same in the stored matrix
  std::vector<int64_t> down, along;  // tile (tn, tb) is stored at down[tn] + along[tb]
  std::vector<int64_t> copy = {0};   // places of a unit's copies, from its first place
  struct Digit {                     // a mode, or a factor of one, at its place
    Mode mode;
    int64_t weight;  // of the digit in the stored bit's number
  };
  std::vector<Digit> strip;     // the digits that count the units of a row of tiles
  std::vector<Repeat> repeats;  // in the order of rows

  int64_t row_grains() const { return storage.b * 8 / grain; }
  /// The source of a stored bit.
  Step source(int64_t stored_bit) const;

 private:
  struct Side;  // down the rows or along them
  std::vector<Digit> take_unit();
  bool take_whole_bytes(std::vector<Digit>& rest);
  void take_copies(std::vector<Digit>& rest);
  static bool split(Digit& d, int64_t take);
  std::vector<Digit> take_together(std::vector<Digit>& digits);
  void take_bits(const std::vector<Step>& bits);
  void cut_tiles(std::vector<Digit> digits);
  static void take_into_tile(std::vector<Digit>& digits, Side side, int64_t& size, std::vector<Digit>& inner);
  std::vector<int64_t> tile_places(const std::vector<Digit>& digits, Side side, int64_t size, int64_t all) const;
  void take_tile(const std::vector<Digit>& digits);
};

/// The source of a stored bit.
Step source_of(const Modes& modes, int64_t stored_bit);

/// Appends `m`. If `m` continues the steps of the last mode, the two become one mode.
void append(Modes& modes, Mode m);

/// Finds the fewest modes with these steps, which may begin anywhere. A digit is split off as soon as the remaining
/// steps do not depend on the digit. In each direction the least step of a mode is 0.
Modes factor(std::vector<Step> steps);

}  // namespace mxfp4
