// Packs and unpacks a strip of a layout: rows of tiles of the storage's width, with row order and pads applied. A route
// (route.h) is run if there is one, else units are moved one by one with tables of their bits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/layouts/matrix.h"
#include "kernels/layouts/modes.h"
#include "kernels/pack/cpu/driver.h"

namespace mxfp4 {

class Strips {
 public:
  Strips(const ModeLayout& layout, const Driver& driver);
  const ModeLayout& layout() const { return layout_; }
  /// Whether the packed matrix is the rows as they are.
  bool is_plain() const { return is_plain_; }
  /// The rows of a strip: as many rows of tiles as possible so that all strips are stored alike.
  int64_t rows() const { return tiles_ * layout_.tile.n; }
  /// Packs strip tn, rows of storage.b bytes, into every copy in `packed`; unpack() reverses it.
  /// - past: write past the caches, because the rows are not read again soon.
  /// - copies: counts the bytes that differ from the packed strip in all copies, if the layout stores several.
  void pack(const uint8_t* strip, int64_t tn, uint8_t* packed) const;
  void unpack(const uint8_t* packed, int64_t tn, uint8_t* strip, bool past, CopyReport& copies) const;

 private:
  using Table = std::array<uint64_t, 256>;  // for each value of one byte of a unit: its bits at their new places
  void pack_copy(const uint8_t* strip, int64_t tn, uint8_t* packed, int64_t copy) const;
  int64_t first_byte(int64_t tn, int64_t copy) const {
    return (layout_.down[size_t(tn * tiles_)] + copy) * layout_.grain / 8;
  }
  void unpack_first(const uint8_t* packed, int64_t tn, uint8_t* strip, bool past) const;
  void check_copies(const uint8_t* packed, int64_t tn, const uint8_t* strip, CopyReport& report) const;
  template <class Move>
  void each_unit(int64_t tn, Move move) const;
  template <class Use>
  bool with_word(Use use) const;
  template <class Places>
  void copy_runs(const uint8_t* from, uint8_t* to, int64_t tn, Places places) const;
  template <class Word>
  static Word packed_unit(const Table* tables, const std::array<int64_t, 8>& gather, const uint8_t* from);
  const ModeLayout& layout_;
  const Driver& driver_;
  const int64_t tiles_;  // rows of tiles of a strip
  const bool is_plain_;
  std::optional<Routes> routes_;
  std::vector<int64_t> from_;           // in the strip: each unit of a tile
  std::array<int64_t, 8> gather_ = {};  // each byte of a unit, from its first
  std::vector<Table> pack_, unpack_;
};

}  // namespace mxfp4
