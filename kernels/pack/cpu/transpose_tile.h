// Transposes tiles whose groups are pairs of columns of 32 rows. Loading two bytes from each of 32 rows would be slow,
// so a whole tile is transposed, with pairs of bytes as elements. Each x86-64 driver compiles its own copy.
//
//     tile    row 0    a0 a1 a2 .. a7          groups    group 0    a0 b0 c0 ..      64 bytes: pair 0 of rows 0 to 31
//             row 1    b0 b1 b2 .. b7                    group 1    a1 b1 c1 ..
//             row 2    c0 c1 c2 .. c7                     ..
//              ..                                        group 7    a7 b7 c7 ..
#pragma once

#include <emmintrin.h>

#include <cstdint>

#include "kernels/pack/cpu/shuffle.h"

namespace mxfp4 {

namespace {

/// Whether group g of L is bytes 2g and 2g + 1 of rows 0 to 31 in order.
template <class L>
constexpr bool has_transposed_groups() {
  if constexpr (L::tile_n != 32 || L::tile_b != 16 || shuffle<L>.chunk != 2) {
    return false;
  } else {
    for (int g = 0; g < 8; ++g)
      for (int c = 0; c < 32; ++c)
        if (const Byte b = shuffle<L>.at[g][c]; b.n != c || b.b != 2 * g) return false;
    return true;
  }
}

/// 8 vectors of 8 pairs of bytes, transposed.
inline void transpose_pairs(__m128i (&x)[8]) {
  __m128i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm_unpacklo_epi16(x[2 * i], x[2 * i + 1]);
    a[2 * i + 1] = _mm_unpackhi_epi16(x[2 * i], x[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i)
    for (int h = 0; h < 2; ++h) {
      b[4 * i + 2 * h] = _mm_unpacklo_epi32(a[4 * i + h], a[4 * i + 2 + h]);
      b[4 * i + 2 * h + 1] = _mm_unpackhi_epi32(a[4 * i + h], a[4 * i + 2 + h]);
    }
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = _mm_unpacklo_epi64(b[i], b[4 + i]);
    x[2 * i + 1] = _mm_unpackhi_epi64(b[i], b[4 + i]);
  }
}

/// A tile of 32 rows of 16 bytes, `stride` apart, to its 8 groups of 64 bytes.
inline void transpose_tile(const uint8_t* tile, int64_t stride, uint8_t (&groups)[512]) {
  for (int r = 0; r < 32; r += 8) {
    __m128i x[8];
    for (int i = 0; i < 8; ++i) x[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + (r + i) * stride));
    transpose_pairs(x);
    for (int i = 0; i < 8; ++i) _mm_store_si128(reinterpret_cast<__m128i*>(groups + i * 64 + r * 2), x[i]);
  }
}

/// The inverse of transpose_tile().
inline void transpose_tile_back(const uint8_t (&groups)[512], uint8_t* tile, int64_t stride) {
  for (int r = 0; r < 32; r += 8) {
    __m128i x[8];
    for (int i = 0; i < 8; ++i) x[i] = _mm_load_si128(reinterpret_cast<const __m128i*>(groups + i * 64 + r * 2));
    transpose_pairs(x);
    for (int i = 0; i < 8; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(tile + (r + i) * stride), x[i]);
  }
}

}  // namespace

}  // namespace mxfp4
