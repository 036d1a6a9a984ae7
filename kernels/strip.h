// The CPU drivers: a strip is one row of tiles, tile_n rows of the storage's width, staged with row order and
// padding applied. A driver moves a strip to the packed matrix and back; all drivers make the same bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/layout.h"
#include "kernels/matrix.h"

namespace mxfp4 {

inline uint32_t load_word(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}
inline void store_word(uint8_t* p, uint32_t w) { std::memcpy(p, &w, 4); }

/// permute() is linear over OR, so four tables of 256 words, one per gathered byte, replace its bit loop.
template <class L>
struct PermuteTables {
  uint32_t pack[4][256] = {}, unpack[4][256] = {};
  constexpr PermuteTables() {
    for (int i = 0; i < 4; ++i)
      for (uint32_t x = 0; x < 256; ++x) {
        pack[i][x] = permute<L>(x << 8 * i);
        unpack[i][x] = unpermute<L>(x << 8 * i);
      }
  }
};
template <class L>
inline constexpr PermuteTables<L> permute_tables{};

/// Pack strip tn. `strip`: tile_n rows of s.b bytes. s: the storage shape.
template <class L>
void pack_strip_tables(const uint8_t* strip, Shape s, int64_t tn, uint8_t* packed) {
  constexpr auto& t = permute_tables<L>.pack;
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    const uint8_t* tile = strip + tb * L::tile_b;
    for (int w = 0; w < words_per_tile<L>; ++w) {
      uint32_t word = 0;
      for (int i = 0; i < 4; ++i) {
        const Byte c = L::at(w, i);
        word |= t[i][tile[c.n * s.b + c.b]];
      }
      store_word(packed + L::offset(s, tn, tb, w), word);
    }
  }
}

/// The inverse of pack_strip_tables().
template <class L>
void unpack_strip_tables(const uint8_t* packed, Shape s, int64_t tn, uint8_t* strip) {
  constexpr auto& t = permute_tables<L>.unpack;
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    uint8_t* tile = strip + tb * L::tile_b;
    for (int w = 0; w < words_per_tile<L>; ++w) {
      const uint32_t p = load_word(packed + L::offset(s, tn, tb, w));
      const uint32_t word = t[0][p & 255] | t[1][p >> 8 & 255] | t[2][p >> 16 & 255] | t[3][p >> 24];
      for (int i = 0; i < 4; ++i) {
        const Byte c = L::at(w, i);
        tile[c.n * s.b + c.b] = uint8_t(word >> 8 * i);
      }
    }
  }
}

}  // namespace mxfp4
