// A tile of a layout by modes as byte shuffles that are found at run time: pieces of up to 64 bytes that are stored
// together, the windows of 64 bytes of the strip that each takes bytes from, and the turns that put bits in their
// places.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/layouts/modes.h"

namespace mxfp4 {

struct ModePieces {
  /// Byte b of a piece, before turns, is byte index[b] of the window for each b in `stored`; byte w of the window is
  /// byte back[w] of the piece for each w in `taken`: of copies in a piece the last.
  struct alignas(64) Window {
    std::array<uint8_t, 64> index = {}, back = {};
    uint64_t stored = 0, taken = 0;
    int64_t at = 0;  // from the tile's first byte in the strip
  };
  struct Piece {
    int64_t to = 0;      // from the tile's first byte in the packed matrix
    uint64_t bytes = 0;  // a mask of as many as it has
    size_t windows = 0;  // up to these
  };
  /// Of 8 bytes as one number, whose bit i is bit (i + by) modulo 64 of the gathered bytes for each i in the mask.
  struct Turn {
    uint64_t mask = 0;
    int by = 0;
  };
  std::vector<Piece> pieces;
  std::vector<Window> windows;
  std::vector<Turn> turns;  // none: all bits are in their places

  /// Empty where the layout's units are better moved one by one.
  explicit ModePieces(const ModeLayout& layout);
  bool pays() const { return !pieces.empty(); }

 private:
  struct Byte;
  void add_piece(const Byte* bytes, int64_t count);
  void find_turns(const ModeLayout& layout);
};

/// A tile's bytes, from the first in the strip to where its first is stored, and back. 64 bytes from any of the strip's
/// on can be read.
using PackPieces = void (*)(const ModePieces& pieces, const uint8_t* tile, uint8_t* packed);
using UnpackPieces = void (*)(const ModePieces& pieces, const uint8_t* packed, uint8_t* tile);

}  // namespace mxfp4
