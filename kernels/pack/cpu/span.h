// A layout as networks (network.h) over vectors of 16 bytes of a row: which vectors belong together, and from and to
// which places they are loaded and stored. The compiler computes all of this, except distances, from the layout's at()
// and offset().
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/pack/cpu/network.h"
#include "kernels/pack/cpu/shuffle.h"

namespace mxfp4 {

/// A layout's blocks and spans. A block is a tile, or the adjacent tiles that together have 16 bytes of a row. Place p
/// in a block is byte p % 4 of packed word p / 4, tile after tile. A span is 4 to 16 vectors of a block. The network
/// moves the bits of places that are in `moved`, 0 to 3 first; the other bits number the spans of a block.
template <class L>
struct Spans {
  static constexpr int tiles = L::tile_b < 16 ? 16 / L::tile_b : 1, tile = words_per_tile<L> * 4, block = tiles * tile;
  bool fits = false;
  std::array<int, 8> moved{0, 1, 2, 3};
  int slots = 0;  // a span has 1 << slots vectors
  Network network;
  Network zipping;  // a network that ends in a zip, if it is as short; else `network`

  constexpr Spans() {
    std::array<int, 4> lane{};  // the bits of a place that number the byte within 16 of a source row
    if (!find_lanes(lane)) return;
    std::array<int, 4> load{};
    for (int i = 0; i < 4; ++i) {
      if (!is_moved(lane[i])) moved[4 + slots++] = lane[i];
      load[i] = int(std::find(moved.begin(), moved.end(), lane[i]) - moved.begin());
    }
    const int needed = moves_bytes<L>() ? 1 : 2;
    for (int bit = 4; slots < needed; ++bit)
      if (!is_moved(bit)) moved[4 + slots++] = bit;
    Bits bits{load, {}, 0};
    for (int i = 0; i < 4 + slots; ++i)
      if (std::find(load.begin(), load.end(), i) == load.end()) bits.slot[bits.slots++] = i;
    const int side = shuffle<L>.run < 8 ? -1 : find_moved([](int bit) { return bit == 4; });
    network = zipping = find_network(bits, !moves_bytes<L>(), side, -1);
    fits = true;
    if (network.ends_in_zip || moves_bytes<L>()) return;
    const Network other = find_network(bits, true, side, find_moved(is_beside));
    if (other.ends_in_zip && other.count == network.count) zipping = other;
  }

  /// The source of place p of a block.
  static constexpr Byte source(int p) {
    const Byte b = L::at(shuffle<L>.order[p % tile / 4], p % 4);
    return {b.n, b.b + p / tile * L::tile_b};
  }
  /// The place of lane 0 of vector v, whose number has `bits`, in span 0.
  constexpr int place(const Bits& bits, int v) const {
    int p = 0;
    for (int i = 0; i < slots; ++i) p |= (v >> i & 1) << moved[bits.slot[i]];
    return p;
  }
  /// The place of vector 0 in span s.
  constexpr int span(int s) const {
    int p = 0;
    for (int bit = 0; 1 << bit < block; ++bit)
      if (!is_moved(bit)) {
        p |= (s & 1) << bit;
        s >>= 1;
      }
    return p;
  }

 private:
  constexpr bool is_moved(int bit) const {
    return std::find(moved.begin(), moved.begin() + 4 + slots, bit) != moved.begin() + 4 + slots;
  }
  /// The index of a moved bit for which f holds; -1: none.
  template <class F>
  constexpr int find_moved(F f) const {
    for (int i = 0; i < 4 + slots; ++i)
      if (f(moved[i])) return i;
    return -1;
  }
  /// Whether places that differ in `bit` are 16 bytes apart in a source row.
  static constexpr bool is_beside(int bit) {
    bool all = true;
    for (int p = 0; p < block; ++p) {
      const Byte low = source(p & ~(1 << bit)), high = source(p | 1 << bit);
      all = all && low.n == high.n && low.b + 16 == high.b;
    }
    return all;
  }
  /// Returns false if places are not a permutation of bits, so that there is no network.
  static constexpr bool find_lanes(std::array<int, 4>& lane) {
    if (shuffle<L>.run < 4 || !std::has_single_bit(unsigned(block)) || L::tile_b % 16 * (16 % L::tile_b) != 0)
      return false;
    int mask = 0;
    for (int bit = 0; 1 << bit < block; ++bit)
      for (int k = 0; k < 4; ++k)
        if (source(1 << bit).n == source(0).n && source(1 << bit).b == source(0).b + (1 << k))
          lane[k] = bit, mask |= 1 << bit;
    for (int p = 0; p < block; ++p) {
      Byte first = source(p & ~mask);
      for (int k = 0; k < 4; ++k) first.b += (p >> lane[k] & 1) << k;
      if (source(p & ~mask).b % 16 != 0 || source(p).n != first.n || source(p).b != first.b) return false;
    }
    return std::popcount(unsigned(mask)) == 4;
  }
};
template <class L>
inline constexpr Spans<L> spans{};
template <class L, bool zipping>
inline constexpr const Network& network = zipping ? spans<L>.zipping : spans<L>.network;

/// Distances of a block's vectors within a strip, and within the packed matrix from their tile's first byte.
template <class L>
struct SpanDistances {
  static constexpr auto& form = spans<L>;
  static constexpr int vectors = 1 << form.slots, count = Spans<L>::block / 16 / vectors;
  int64_t from[count][vectors], to[count][vectors];
  SpanDistances(Shape s, const Network& network) {
    for (int i = 0; i < count; ++i)
      for (int v = 0; v < vectors; ++v) {
        const Byte b = form.source(form.span(i) | form.place(network.loaded, v));
        const int p = (form.span(i) | form.place(network.stored, v)) % form.tile;
        from[i][v] = b.n * s.b + b.b;
        to[i][v] = L::offset(s, 0, 0, shuffle<L>.order[p / 4]) - L::offset(s, 0, 0, 0);
      }
  }
};

}  // namespace mxfp4
