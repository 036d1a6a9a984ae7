// Packs and unpacks a strip of a layout. A route (route.h) is run if there is one, else units are moved one by one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/numbers.h"

namespace mxfp4 {

class Strips {
 public:
  Strips(const ModeLayout& layout, const Driver& driver);
  const ModeLayout& layout() const { return layout_; }
  /// Whether the packed matrix is the rows as they are.
  bool is_plain() const { return is_plain_; }
  int64_t rows() const { return numbers_.rows; }
  /// Packs rows n on, as many as a strip has, into every copy in `packed`. unpack() reads one copy: the last one in a
  /// unit, and the first unit.
  /// - past: write past the caches, because the rows are not read again soon.
  void pack(const uint8_t* strip, int64_t n, uint8_t* packed) const;
  void unpack(const uint8_t* packed, int64_t n, uint8_t* strip, bool past) const;
  /// Whether the other copies equal the unpacked strip; false if a unit has copies or nibbles.
  bool has_equal_copies(const uint8_t* packed, int64_t n, const uint8_t* strip) const;

 private:
  using Table = std::array<uint64_t, 256>;  // for each value of one byte of a unit: its bits at their new places
  /// How the bits of units are mixed. `from`, `to`: the places of a unit's bytes.
  struct Mix {
    std::vector<Table> tables;
    std::array<int64_t, 8> from = {}, to = {};
  };
  int64_t place(int64_t n) const { return numbers_.strips[size_t(n / numbers_.rows)]; }
  template <class Places>
  void move(const uint8_t* from, uint8_t* to, const Mix& mix, Places places) const;
  template <class Move>
  void each_unit(Move move) const;
  void find_units();
  void make_mixes();
  const ModeLayout& layout_;
  const Driver& driver_;
  const Numbers numbers_;
  const bool is_plain_;
  std::optional<Routes> routes_;
  std::vector<int64_t> copies_ = {0};  // the places of a unit's copies, in nibbles
  List inner_, outer_;                 // units are at the sums of one of each; empty if routes move them
  Mix pack_, unpack_;
};

}  // namespace mxfp4
