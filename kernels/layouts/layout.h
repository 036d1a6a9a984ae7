// A layout defines the place of each byte and bit of one matrix.
//
// A matrix is n rows of b bytes, row after row. Codes have b = K/2: byte j holds column 2j in its low nibble and 2j+1
// in its high nibble. Scales have b = K/32. A bias is a matrix of n rows of one element.
// A layout reads four source bytes, rearranges their 32 bits and stores the word at an offset. Three constexpr
// functions define this; its modes (modes.h), and so all that packs, and the proof below are derived from them:
//
//     struct L {
//       static constexpr const char* name;            // "marlin.codes": the name in the manifest
//       static constexpr int tile_n, tile_b;          // a tile is tile_n rows of tile_b bytes
//       static constexpr int store_n, store_b;        // storage is padded up to multiples of these (1: never)
//       Byte at(int w, int i);                        // source byte i (0..3, first = lowest) of word w of a tile
//       int bit(int i);                               // bit i of the word comes from gathered bit bit(i); none: i
//       int64_t offset(Shape s, int64_t tn, int64_t tb, int w);   // byte offset of word w of tile (tn, tb)
//     };
//
// Words are little-endian. `s` is always the storage shape. layouts.cpp proves is_bijection<L>() for every layout:
// every source byte is stored and every destination byte is written. The proof also covers that a word's distance from
// its tile's first word is the same in every tile.
//
// The row order of w13 is no part of a layout, nor is a cast of values: RowOrder (matrix.h) and the caller apply
// them before. A layout that keeps every byte in its place, whatever the width, has no words at all: Plain.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/hd.h"

namespace mxfp4 {

/// n rows of b bytes.
struct Shape {
  int64_t n = 0, b = 0;
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

/// Byte b of row n inside a tile.
struct Byte {
  int n, b;
};

/// The bit() of a layout that moves nibbles: nibble j of the word is gathered nibble nibble[j].
constexpr int nibble_bit(const int (&nibble)[8], int i) { return nibble[i / 4] * 4 + i % 4; }

/// Base of a layout that never pads its storage.
struct Unpadded {
  static constexpr int store_n = 1, store_b = 1;
};

/// Base of a layout that stores the rows as they are, each padded to a multiple of row_bytes.
template <int row_bytes>
struct PlainRows {
  static constexpr int tile_n = 1, tile_b = 1, store_n = 1, store_b = row_bytes;
};

template <class L>
inline constexpr bool is_plain = !requires {
  L::at(0, 0);
};

/// L's bit(), if it has one.
template <class L>
constexpr int bit_of(int i) {
  if constexpr (requires { L::bit(0); }) return L::bit(i);
  return i;
}

template <class L>
inline constexpr int words_per_tile = L::tile_n* L::tile_b / 4;

/// The shape that L stores for a matrix of shape s: s itself, or s with L's own storage padding.
template <class L>
constexpr Shape storage(Shape s) {
  return {round_up(s.n, L::store_n), round_up(s.b, L::store_b)};
}

/// Whether L can hold a matrix of shape s.
template <class L>
constexpr bool fits(Shape s) {
  const Shape p = storage<L>(s);
  return p.n % L::tile_n == 0 && p.b % L::tile_b == 0;
}

/// The layouts of a header, which ends with its list. layouts.h joins the lists.
template <class... L>
struct LayoutList {};

namespace detail {

template <class L>
constexpr bool tile_is_bijection() {
  std::array<bool, L::tile_n * L::tile_b> seen{};
  for (int w = 0; w < words_per_tile<L>; ++w)
    for (int i = 0; i < 4; ++i) {
      const Byte c = L::at(w, i);
      if (c.n < 0 || c.n >= L::tile_n || c.b < 0 || c.b >= L::tile_b) return false;
      if (seen[c.n * L::tile_b + c.b]) return false;
      seen[c.n * L::tile_b + c.b] = true;
    }
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= 1u << bit_of<L>(i);
  return bits == 0xFFFFFFFFu;
}

/// Checked on two by three tiles, after storage padding.
template <class L>
constexpr bool offsets_are_bijection() {
  constexpr Shape s = storage<L>({2 * L::tile_n, 3 * L::tile_b});
  std::array<bool, s.n * s.b / 4> seen{};
  for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn)
    for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb)
      for (int w = 0; w < words_per_tile<L>; ++w) {
        const int64_t at = L::offset(s, tn, tb, w);
        if (at < 0 || at % 4 || at / 4 >= s.n * s.b / 4 || seen[at / 4]) return false;
        if (at - L::offset(s, tn, tb, 0) != L::offset(s, 0, 0, w) - L::offset(s, 0, 0, 0)) return false;
        seen[at / 4] = true;
      }
  return true;
}

/// A storage multiple and the tile: one divides the other.
constexpr bool agree(int tile, int store) { return tile % store == 0 || store % tile == 0; }

}  // namespace detail

template <class L>
constexpr bool is_bijection() {
  return detail::agree(L::tile_n, L::store_n) && detail::agree(L::tile_b, L::store_b) &&
         detail::tile_is_bijection<L>() && detail::offsets_are_bijection<L>();
}

}  // namespace mxfp4
