// Packs or unpacks a strip of a layout by modes with shuffles of pairs of vectors, which are found at run time.
//
// A strip is cut into blocks of whole cache lines on both sides. Each bit of a byte's number in a block moves the byte
// by a fixed distance in the input and in the output. Some bits number the bytes of a vector (lanes), the others number
// the vectors of the block (slots). A shuffle of pairs of vectors exchanges a lane bit and a slot bit:
//
//     marlin.codes, vectors of 64 bytes   lanes                                slots
//     read, 8 rows of 64 bytes            columns 1, 2, 4, 8, 16, 32           rows 8, 16, 32
//     shuffled once                       columns 1, 2, 8, 16, 32, row 16      row 8, column 4, row 32
//     bits mixed                          columns 1, 2, 8, 16, 32, row 16      bytes 1 and 2 of a word, row 32
//     shuffled three times, written       bytes 1 and 2, rows 16, 32, columns 1, 2     columns 8, 16, 32: eight tiles
//
// Before the bits of bytes are mixed, the bits that number the bytes of a unit are moved to slots. Then each vector is
// a plane, and bits move between bytes of a unit by operations on whole planes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/layouts/matrix.h"
#include "kernels/layouts/modes.h"

namespace mxfp4 {

/// The form of a driver's vectors: 1 << kept_bits parts of 1 << lane_bits bytes, which a shuffle treats in the same
/// way.
struct VectorForm {
  int lane_bits = 0, kept_bits = 0;
  constexpr int bits() const { return lane_bits + kept_bits; }
};

struct ModePlan {
  static constexpr int most_bytes = 8192;  // of a block: two of them are in the first cache

  /// Shuffles pairs of vectors whose numbers differ by `apart` (0: each vector alone). Byte i of the new first vector
  /// is byte index[0][i] of the old pair, byte i of the new second vector is byte index[1][i]. The first vector's bytes
  /// come before the second's.
  struct Shuffle {
    int apart = 0;
    alignas(64) std::array<std::array<uint8_t, 64>, 2> index = {};
  };
  /// The bits that one plane adds to another: a matrix over GF(2) in the form of gf2p8affineqb, and its results for
  /// both nibbles.
  struct Term {
    int from = 0;  // the plane's first vector
    uint64_t matrix = 0;
    std::array<std::array<uint8_t, 16>, 2> nibble = {};
  };
  struct Plane {
    int to = 0;
    std::vector<Term> terms;
  };
  /// The places of a block in memory, from its first byte: as ascending pieces of `bytes` bytes, and by vectors if each
  /// vector is contiguous.
  struct Pieces {
    struct Piece {
      int at;  // in the block, vector after vector
      int64_t place;
    };
    int bytes = 0;
    std::vector<Piece> all;
    std::vector<int64_t> vectors;
  };
  struct Block {
    int64_t from, to;  // its begin in the strip and in the packed strip, or the reverse
  };

  int bytes = 0;                  // of a block
  std::vector<int64_t> in_a_row;  // places of its vectors if these are contiguous
  Pieces from, to;
  std::vector<Shuffle> before, after;  // the bits are mixed
  std::vector<Plane> planes;           // empty: bits stay in their bytes
  int plane_bits = 0;                  // bits of a vector's number that select its plane
  std::vector<Block> blocks;           // in the order of the packed bytes
  bool past_caches = false;            // writes are whole cache lines, so they may bypass the caches
  int64_t row = 0;                     // bytes of the strip's rows
};

struct ModePlans {
  ModePlan pack, unpack;
};

/// Plans for strips of `tiles` rows of tiles, all stored in the same way. Returns none if units are better moved one by
/// one, since their places are not sums of such bits.
std::optional<ModePlans> find_plans(const ModeLayout& layout, int64_t tiles, VectorForm form);

/// Packs a strip to the place of its first packed byte, or unpacks it. past: bypass the caches if `to` is suitably
/// aligned. next: see PackStrip.
using RunPlan = void (*)(const ModePlan& plan, const uint8_t* from, uint8_t* to, bool past, const Rows& next);

}  // namespace mxfp4
