// A layout's way through vectors, found at run time from its modes.
//
// A strip is cut into blocks of whole cache lines on both sides. Each bit of a nibble's number in a block moves the
// nibble by a fixed distance in the input and in the output. Some bits number the nibbles of a vector (lanes), the
// others number the vectors of the block (slots). Exchanges of a lane bit and a slot bit bring each bit to its place:
//
//     marlin.codes             nibble      bytes of a vector of 64                              slots
//     read: 8 rows             column 1    columns 2, 4, 8, 16, 32, 64                          rows 8, 16, 32
//     exchanged twice          column 8    columns 2, 4, row 8, columns 16, 32, 64              column 1, rows 16, 32
//     exchanged three times    column 8    columns 2, 4, rows 8, 32, column 1, row 16           columns 32, 64, 16
//     sorted, written          column 8    row 8, column 1, rows 16, 32, columns 2, 4           eight tiles
//
// If the bits of units move otherwise than by nibbles, the bits that number a unit's bytes are moved to slots first.
// Then each vector is a plane, and bits move between bytes of a unit by operations on whole planes.
//
// The idea is that of "linear layouts" (Triton; Zhou et al., arXiv:2505.23819): a layout maps the bits of a place to
// bits of lanes and registers, and a conversion is a product of exchanges. Used here: the split into lanes and slots,
// and exchanges of one bit each. Different: a place is a sum of digits, so a count need not be a power of two (other
// factors number blocks); steps are fixed distances in memory, not vectors over GF(2), so there is no XOR; and the bits
// within a byte are part of the layout.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/layouts/matrix.h"
#include "kernels/layouts/modes.h"

namespace mxfp4 {

/// The form of a driver's vectors: 1 << lane_bits bytes. The lowest `sorted_bits` lane bits can change places within a
/// vector, and the highest lane bit with the bit below it.
struct VectorForm {
  int lane_bits = 0, sorted_bits = 0;
  constexpr int bytes() const { return 1 << lane_bits; }
};

struct Route {
  static constexpr int most_bytes = 8192;  // of a block: two of them are in the first cache
  static constexpr int most_slots = 3;     // of a group: its vectors stay in registers

  /// The bits that one plane adds to another: a matrix over GF(2) in the form of gf2p8affineqb, and its results for
  /// both nibbles. used: bit h is set if nibble h adds any.
  struct Term {
    uint64_t matrix = 0;
    int used = 0;
    std::array<std::array<uint8_t, 16>, 2> nibble = {};
  };
  enum Kind { exchange_0, exchange_1, exchange_2, sort, swap, mix_1, mix_2, mix_4, mix_8 };
  /// exchange_S: bit `lane` of the lane (0: the nibble, 1 and up: the byte) and bit S of the vector's number change
  /// places. sort: byte i is byte index[i].
  /// swap: the two highest lane bits change places. mix_P: term j * P + i says what plane i adds to plane j; the lowest
  /// bits of a vector's number tell its plane.
  struct Step {
    Kind kind;
    int lane = 0;
    alignas(64) std::array<uint8_t, 64> index = {};
    std::vector<Term> terms = {};
  };
  /// Steps that run in registers on a group: the vectors i + at[0], i + at[1], .. for each i without the bits `mask`.
  struct Pass {
    int slots = 0, mask = 0;
    std::array<int, 1 << most_slots> at = {};
    std::vector<Step> steps;
  };
  /// The places of a block's pieces in memory, from its first byte: pieces of `bytes` bytes, in the order of vectors.
  struct Pieces {
    int bytes = 0;
    std::vector<int64_t> at;
  };
  struct Block {
    int64_t from, to;  // its begin in the strip and in the packed strip, or the reverse
  };

  int bytes = 0;  // of a block
  Pieces from, inner, to;
  std::vector<Pass> passes;
  std::vector<Block> blocks;  // in the order of the packed bytes
  bool past_caches = false;   // writes are whole cache lines, so they may bypass the caches
  int64_t row = 0;            // bytes of the strip's rows
};

struct Routes {
  Route pack, unpack;
};

/// Routes for strips of `tiles` rows of tiles, all stored in the same way. Returns none if units are better moved one
/// by one, since their places are not sums of such bits.
std::optional<Routes> find_routes(const ModeLayout& layout, int64_t tiles, VectorForm form);

/// Packs a strip to the place of its first packed byte, or unpacks it. past: bypass the caches if `to` is suitably
/// aligned. next: the rows of the next strip, which are prefetched; null data: none.
using RunRoute = void (*)(const Route& route, const uint8_t* from, uint8_t* to, bool past, const Rows& next);

}  // namespace mxfp4
