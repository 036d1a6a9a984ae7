// A layout's way through vectors, found at run time from its modes.
//
// A strip is cut into blocks of whole cache lines on both sides. Each bit of a nibble's number in a block moves the
// nibble by a fixed distance in the input and in the output. Some bits number the nibbles of a vector (lanes), the
// others number the vectors of the block (slots). Exchanges of a lane bit and a slot bit bring each bit to its place:
//
//     marlin.codes             nibble      bytes of a vector of 64                              slots
//     read: 8 rows             column 1    columns 2, 4, 8, 16, 32, 64                          rows 8, 16, 32
//     exchanged twice          column 8    columns 2, 4, row 16, columns 16, 32, 64             column 1, rows 8, 32
//     exchanged three times    column 8    columns 2, 4, row 16, column 1, rows 32, 8           columns 16, 32, 64
//     sorted, written          column 8    row 8, column 1, rows 16, 32, columns 2, 4           eight tiles
//
// The moves are the cheapest that lane_moves.h finds. Some drivers can also zip two vectors.
//
// If the bits of units move otherwise than by nibbles, the bits that number a unit's bytes are moved to slots first.
// Then each vector is a plane, and bits move between bytes of a unit by operations on whole planes.
//
// The idea comes from Triton's "Linear Layouts" (Zhou et al., arXiv:2505.23819). There a layout is a matrix over F2
// that maps the bits of the numbers of a register, a lane and a warp to the bits of a place. A conversion inverts one
// matrix and multiplies by another; it exchanges registers between lanes if it can, else it writes to swizzled shared
// memory. Used here: a conversion depends on bits only, some of which number lanes and some vectors, and it is a
// product of exchanges. Different: places are sums of digits, so a count need not be a power of two; other factors
// number blocks. A bit moves by a distance in memory, so there is no XOR and no matrix to invert. Bits of a byte move,
// too.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/pack/cpu/numbers.h"

namespace mxfp4 {

/// How a driver adds bits of a plane to another one:
/// - matrices: One instruction adds any bits of a byte.
/// - tables: A table adds the bits of each nibble.
/// - shifts: A shift adds the bits that move alike.
/// - cheapest: shifts, or tables if they are cheaper.
enum class Mixing { matrices, tables, shifts, cheapest };

/// The form of a driver's vectors: 1 << lane_bits bytes. The lowest `sorted_bits` lane bits can change places within a
/// vector. If they are not all, the highest lane bit and the bit below it can also change places. With sorted_bits 0
/// lanes change places by exchanges only.
struct VectorForm {
  int lane_bits = 0, sorted_bits = 0;
  Mixing mixing = Mixing::tables;
  bool passes_caches = true;  // has past()
  int slots = 3;              // of a group: its vectors stay in registers
  int zip = 0, unzip = 0;     // their costs, if there are such moves
  int exchange = 4;           // its cost
  int mixing_slots = slots;   // of a group, if planes are mixed
  constexpr int bytes() const { return 1 << lane_bits; }
  /// Bytes of a piece; shorter ones are copied. Only vectors of 64 bytes are loaded and stored in pieces.
  constexpr int least_load() const { return lane_bits == 6 ? 16 : bytes(); }
  constexpr bool sorts() const { return sorted_bits > 0; }                     // has sorted()
  constexpr bool swaps() const { return sorts() && sorted_bits < lane_bits; }  // has swapped()
};

struct Route {
  static constexpr int most_bytes = 8192;  // of a block: two of them are in the first cache
  static constexpr int most_slots = 4;     // of a group

  /// How a plane's bits come to another plane. The first term makes that plane: all bits by a shift (begin), the plane
  /// itself (same), or a table of the low nibble (begin_low). Later terms overwrite bits: by a shift, at the same place
  /// (still), by a table of a nibble (low, high), or by a shift of 1 to 7 that gives each bit that it can (left, right;
  /// only with Mixing::cheapest). `by` is the shift of each byte to the left, or the table. With matrices, begin and
  /// shift mean that `by` is a matrix over GF(2) in the form of gf2p8affineqb.
  enum Kind { begin, same, begin_low, shift, still, low, high, left, right = left + 7, kinds = right + 7 };
  struct Term {
    int code = 0;       // kind * planes + the other plane
    bool last = false;  // of a plane
    alignas(16) std::array<uint8_t, 16> by = {};
    std::array<uint8_t, 16> bits = {};  // those that the term gives, in each byte
  };
  enum Code { zip = 32, unzip = 64, sort = 96, swap, mix_1, mix_2, mix_4, mix_8 };
  /// - A code below 32 exchanges two bits. Bit `code / most_slots` is one of the lane: 0 is the nibble, 1 and up the
  ///   byte. Bit `code % most_slots` is one of the vector's number in its group.
  /// - zip + such a code: the lane's bit and those above it go up by one. The slot's bit comes to the lane, and the
  ///   highest bit to the slot. unzip is the reverse.
  /// - sort: byte i is byte index[i].
  /// - swap: the two highest lane bits change places.
  /// - mix_P: `terms` make P planes, one after the other. The lowest bits of a vector's number are its plane.
  struct Step {
    int code = 0;
    alignas(64) std::array<uint8_t, 64> index = {};
    std::vector<Term> terms = {};
  };
  /// The places that a pass reads or writes: the first piece of each group, and the distances by which bits move. These
  /// are bits of a vector's number in its group, and of a piece's number in its vector.
  struct Places {
    int pieces = 1;  // of a vector
    std::array<int64_t, most_slots> slot = {};
    std::array<int64_t, 2> piece = {};
    std::vector<int64_t> groups;
  };
  /// Steps that run in registers on groups of 1 << slots vectors.
  struct Pass {
    int slots = 0;
    bool mixes = false;  // planes
    std::vector<Step> steps;
    Places from, to;
  };
  /// The places of short pieces from a block's first byte, in the order of vectors.
  struct Pieces {
    int bytes = 0;
    std::vector<int64_t> at;
  };
  struct Block {
    int64_t from, to;  // its begin in the strip and in the packed strip, or the reverse
  };

  int bytes = 0;    // of a block
  Pieces from, to;  // in memory, if they are copied: the passes work in a buffer
  std::vector<Pass> passes;
  std::vector<int64_t> lines;  // of the cache that a block reads, the same number for each group of the first pass
  int64_t group_lines = 0;
  bool shared_lines = false;  // blocks share them
  std::vector<Block> blocks;  // in the order of the packed bytes
  bool past_caches = false;   // writes are whole cache lines, so they may bypass the caches
};

struct Routes {
  Route pack, unpack;
};

/// Routes for the strips of a layout. Returns none if units are better moved one by one, since their places are not
/// sums of such bits.
std::optional<Routes> find_routes(const ModeLayout& layout, const Numbers& numbers, VectorForm form);

/// Packs a strip to the place of its first packed byte, or unpacks it. If `past`, stores bypass the caches, provided
/// that `to` is aligned for that.
using RunRoute = void (*)(const Route& route, const uint8_t* from, uint8_t* to, bool past);

}  // namespace mxfp4
