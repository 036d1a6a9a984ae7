// The CPU drivers: a strip is one row of tiles, tile_n rows of the storage's width, with row order and padding
// applied. A driver moves a strip to the packed matrix and back; all drivers make the same bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/layouts/layout.h"
#include "kernels/layouts/matrix.h"

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
      for (uint32_t x = 1; x < 256; ++x) {
        const uint32_t rest = x & (x - 1), bit = (x ^ rest) << 8 * i;
        pack[i][x] = pack[i][rest] | (rest ? pack[i][x ^ rest] : permute<L>(bit));
        unpack[i][x] = unpack[i][rest] | (rest ? unpack[i][x ^ rest] : unpermute<L>(bit));
      }
  }
};
template <class L>
inline constexpr PermuteTables<L> permute_tables{};

/// Whether L moves bytes only: a packed word is its four gathered bytes in order.
template <class L>
constexpr bool moves_bytes() {
  for (int i = 0; i < 32; ++i)
    if (L::bit(i) != i) return false;
  return true;
}

/// Bytes that L moves as one, in the strip and in the packed matrix: up to 64, or 0 if not even a word.
template <class L>
constexpr int run_bytes() {
  constexpr Shape s{L::tile_n, L::tile_b};
  int run = moves_bytes<L>() ? L::tile_b < 64 ? L::tile_b : 64 : 0;
  for (int b = 0; b < words_per_tile<L> * 4; ++b)
    while (run > 0) {
      const Byte at = L::at(b / 4, b % 4), first = L::at(b / run * run / 4, 0);
      const int64_t to = L::offset(s, 0, 0, b / 4) + b % 4, first_to = L::offset(s, 0, 0, b / run * run / 4);
      if (at.n == first.n && at.b == first.b + b % run && to == first_to + b % run) break;
      run = run / 2 / 4 * 4;
    }
  return run;
}

/// Whether strip tn is bytes [tn, tn + 1) * tile_n * s.b of any packed matrix.
template <class L>
constexpr bool is_strip_together() {
  for (const Shape s : {Shape{2 * L::tile_n, 3 * L::tile_b}, Shape{3 * L::tile_n, 5 * L::tile_b}})
    for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb)
      for (int w = 0; w < words_per_tile<L>; ++w)
        if (L::offset(s, 1, tb, w) / (L::tile_n * s.b) != 1) return false;
  return true;
}

/// The offsets of each word of a tile: of its four bytes in the strip, and of the packed word. Both count from the
/// tile's first byte.
template <class L>
struct Places {
  int32_t from[words_per_tile<L>][4];
  int64_t to[words_per_tile<L>];
  explicit Places(Shape s) {
    const int64_t first = L::offset(s, 0, 0, 0);
    for (int w = 0; w < words_per_tile<L>; ++w) {
      to[w] = L::offset(s, 0, 0, w) - first;
      for (int i = 0; i < 4; ++i) from[w][i] = int32_t(L::at(w, i).n * s.b + L::at(w, i).b);
    }
  }
};

template <class L>
uint32_t pack_word(const uint8_t* tile, const int32_t (&from)[4]) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i)
    if constexpr (moves_bytes<L>())
      word |= uint32_t(tile[from[i]]) << 8 * i;
    else
      word |= permute_tables<L>.pack[i][tile[from[i]]];
  return word;
}

template <class L>
uint32_t unpack_word(uint32_t p) {
  if constexpr (moves_bytes<L>()) {
    return p;
  } else {
    constexpr auto& t = permute_tables<L>.unpack;
    return t[0][p & 255] | t[1][p >> 8 & 255] | t[2][p >> 16 & 255] | t[3][p >> 24];
  }
}

/// Asks for the lines of a strip's rows, some with each tile: a processor waits for few lines at a time.
class StripAhead {
 public:
  StripAhead(const Rows& rows, int64_t width) : rows_(rows), width_(width) {}
  void ask(int lines) {
    for (int i = 0; rows_.data && i < lines; ++i) {
      __builtin_prefetch(rows_.data + at_, 0, 2);
      at_ += 64;
      if (at_ >= width_) {
        rows_.data += rows_.stride;
        at_ -= width_;
      }
    }
  }

 private:
  Rows rows_;
  int64_t width_, at_ = 0;
};
template <class L>
inline constexpr int lines_per_tile = (L::tile_n * L::tile_b + 63) / 64;

/// Pack strip tn. `strip`: tile_n rows of s.b bytes. s: the storage shape.
template <class L>
void pack_strip_tables(const uint8_t* strip, Shape s, int64_t tn, uint8_t* packed, const Rows& next) {
  constexpr int run = run_bytes<L>();
  const Places<L> places(s);
  StripAhead ahead(next, s.b);
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    const uint8_t* tile = strip + tb * L::tile_b;
    uint8_t* out = packed + L::offset(s, tn, tb, 0);
    ahead.ask(lines_per_tile<L>);
    if constexpr (run > 0)
      for (int w = 0; w < words_per_tile<L>; w += run / 4)
        std::memcpy(out + places.to[w], tile + places.from[w][0], run);
    else
      for (int w = 0; w < words_per_tile<L>; ++w) store_word(out + places.to[w], pack_word<L>(tile, places.from[w]));
  }
}

/// The inverse of pack_strip_tables().
template <class L>
void unpack_strip_tables(const uint8_t* packed, Shape s, int64_t tn, uint8_t* strip) {
  constexpr int run = run_bytes<L>();
  const Places<L> places(s);
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    uint8_t* tile = strip + tb * L::tile_b;
    const uint8_t* in = packed + L::offset(s, tn, tb, 0);
    if constexpr (run > 0) {
      for (int w = 0; w < words_per_tile<L>; w += run / 4)
        std::memcpy(tile + places.from[w][0], in + places.to[w], run);
    } else {
      // The words of a tile may be in up to tile_n rows. These are too many streams for the processor's prefetcher.
      const uint8_t* ahead = packed + L::offset(s, tn, tb + 8, 0);
      for (int w = 0; w < words_per_tile<L>; w += 4) __builtin_prefetch(ahead + places.to[w]);
      uint32_t words[words_per_tile<L>];
      for (int w = 0; w < words_per_tile<L>; ++w) words[w] = unpack_word<L>(load_word(in + places.to[w]));
      for (int w = 0; w < words_per_tile<L>; ++w)
        for (int i = 0; i < 4; ++i) tile[places.from[w][i]] = uint8_t(words[w] >> 8 * i);
    }
  }
}

}  // namespace mxfp4
