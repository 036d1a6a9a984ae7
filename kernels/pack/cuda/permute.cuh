// The work of a thread in registers: the bytes of a unit become packed words, and back.
//
// If the four bytes of a word come from the same byte of four registers (planar), bits are permuted before bytes. A
// shift and a mask then serve four words at once, and a 4x4 byte transpose makes the words. Otherwise bytes are
// gathered first. Both ways are derived from bit() at compile time and compile to lop3, shf and prmt.
#pragma once

#include <cstdint>

#include "kernels/pack/cuda/block.cuh"

namespace mxfp4 {

/// The move of those bits of gathered byte `from` that go to byte `to` with the same shift.
struct BitGroup {
  int from = 0, to = 0, shift = 0;  // shift: right if positive
  uint32_t mask = 0;                // after the shift, the same in all four bytes
};

/// The bit permutation of L (or its inverse) as groups, on four registers that hold byte 0, 1, 2 and 3 of four words.
struct PlaneMoves {
  BitGroup groups[32];
  int count = 0;
  MXFP4_HD constexpr void move(int from, int to) {
    const int shift = from % 8 - to % 8;
    int g = 0;
    while (g < count && !(groups[g].from == from / 8 && groups[g].to == to / 8 && groups[g].shift == shift)) ++g;
    if (g == count) groups[count++] = {from / 8, to / 8, shift, 0};
    groups[g].mask |= 0x01010101u << to % 8;
  }
};

template <class L>
MXFP4_HD constexpr PlaneMoves plane_moves(bool inverse) {
  PlaneMoves moves;
  for (int i = 0; i < 32; ++i) inverse ? moves.move(i, L::bit(i)) : moves.move(L::bit(i), i);
  return moves;
}

/// Bits that move by the same shift within bytes, once the bytes are in place.
struct Layer {
  int shift = 0;                   // right if positive
  int byte[4] = {-1, -1, -1, -1};  // destination of each byte; -1: any
  uint32_t mask = 0;               // after the shift
};

/// The bit permutation of L (or its inverse) on one word, as the layers that are OR-ed.
struct WordMoves {
  Layer layers[32];
  int count = 0;
  MXFP4_HD constexpr void move(int from, int to) {
    const int shift = from % 8 - to % 8, q = to / 8;
    int l = 0;
    while (l < count && !(layers[l].shift == shift && (layers[l].byte[q] < 0 || layers[l].byte[q] == from / 8))) ++l;
    if (l == count) layers[count++].shift = shift;
    layers[l].byte[q] = from / 8;
    layers[l].mask |= 1u << to;
  }
  /// Sets bytes that a layer does not use to those of another layer, so that one prmt serves both.
  MXFP4_HD constexpr void share_bytes() {
    for (int a = 0; a < count; ++a)
      for (int b = 0; b < count; ++b) {
        bool agree = true;
        for (int q = 0; q < 4; ++q)
          agree &= layers[a].byte[q] < 0 || layers[b].byte[q] < 0 || layers[a].byte[q] == layers[b].byte[q];
        for (int q = 0; q < 4 && agree; ++q) {
          if (layers[a].byte[q] < 0) layers[a].byte[q] = layers[b].byte[q];
          if (layers[b].byte[q] < 0) layers[b].byte[q] = layers[a].byte[q];
        }
      }
    for (int a = 0; a < count; ++a)
      for (int q = 0; q < 4; ++q)
        if (layers[a].byte[q] < 0) layers[a].byte[q] = q;
  }
};

template <class L>
MXFP4_HD constexpr WordMoves word_moves(bool inverse) {
  WordMoves moves;
  for (int i = 0; i < 32; ++i) inverse ? moves.move(i, L::bit(i)) : moves.move(L::bit(i), i);
  moves.share_bytes();
  return moves;
}

template <class L, bool inverse>
__device__ __forceinline__ void permute_planes(const uint32_t (&in)[4], uint32_t (&out)[4]) {
  constexpr PlaneMoves moves = plane_moves<L>(inverse);
  for (int q = 0; q < 4; ++q) out[q] = 0;
#pragma unroll
  for (int g = 0; g < moves.count; ++g) {
    const BitGroup& group = moves.groups[g];
    const uint32_t x = in[group.from];
    out[group.to] |= (group.shift > 0 ? x >> group.shift : x << -group.shift) & group.mask;
  }
}

/// Byte j of register i becomes byte i of register j.
__device__ __forceinline__ void transpose_bytes(uint32_t (&x)[4]) {
  const uint32_t low01 = __byte_perm(x[0], x[1], 0x5140), high01 = __byte_perm(x[0], x[1], 0x7362);
  const uint32_t low23 = __byte_perm(x[2], x[3], 0x5140), high23 = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(low01, low23, 0x5410);
  x[1] = __byte_perm(low01, low23, 0x7632);
  x[2] = __byte_perm(high01, high23, 0x5410);
  x[3] = __byte_perm(high01, high23, 0x7632);
}

/// Four bytes as a word: one prmt if they come from one register or two, else three.
template <int words>
__device__ __forceinline__ uint32_t gather_bytes(const uint32_t (&x)[words], const ByteOf (&at)[4]) {
  const int a = at[0].word;
  int b = a;
  bool two = true;
#pragma unroll
  for (int i = 1; i < 4; ++i) {
    if (b == a) b = at[i].word;
    two &= at[i].word == a || at[i].word == b;
  }
  if (two) {
    uint32_t select = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) select |= (at[i].byte + (at[i].word == a ? 0 : 4)) << 4 * i;
    return __byte_perm(x[a], x[b], select);
  }
  const uint32_t low = __byte_perm(x[a], x[at[1].word], at[0].byte | (at[1].byte + 4) << 4);
  const uint32_t high = __byte_perm(x[at[2].word], x[at[3].word], at[2].byte | (at[3].byte + 4) << 4);
  return __byte_perm(low, high, 0x5410);
}

__device__ __forceinline__ uint32_t shifted(uint32_t x, const Layer& layer) {
  return (layer.shift > 0 ? x >> layer.shift : x << -layer.shift) & layer.mask;
}

/// rows: register 4p + c is bytes 4c to 4c+3 of the unit's piece p.
template <class L, int n>
__device__ __forceinline__ void pack_unit(const uint32_t (&rows)[n], uint32_t (&words)[n]) {
  constexpr BlockMap<L> map;
  if constexpr (map.planar) {
#pragma unroll
    for (int j = 0; j < n; j += 4) {
      uint32_t planes[4], moved[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) planes[i] = rows[map.from[j][i].word];
      permute_planes<L, false>(planes, moved);
      transpose_bytes(moved);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[j + i] = moved[i];
    }
  } else {
    constexpr WordMoves moves = word_moves<L>(false);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      words[j] = 0;
#pragma unroll
      for (int l = 0; l < moves.count; ++l) {
        const Layer& layer = moves.layers[l];
        const ByteOf at[4] = {map.from[j][layer.byte[0]], map.from[j][layer.byte[1]], map.from[j][layer.byte[2]],
                              map.from[j][layer.byte[3]]};
        words[j] |= shifted(gather_bytes(rows, at), layer);
      }
    }
  }
}

/// The inverse of pack_unit().
template <class L, int n>
__device__ __forceinline__ void unpack_unit(const uint32_t (&words)[n], uint32_t (&rows)[n]) {
  constexpr BlockMap<L> map;
  if constexpr (map.planar) {
#pragma unroll
    for (int j = 0; j < n; j += 4) {
      uint32_t planes[4], moved[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) moved[i] = words[j + i];
      transpose_bytes(moved);
      permute_planes<L, true>(moved, planes);
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[map.from[j][i].word] = planes[i];
    }
  } else {
    constexpr WordMoves moves = word_moves<L>(true);
    uint32_t gathered[n];
#pragma unroll
    for (int j = 0; j < n; ++j) {
      gathered[j] = 0;
#pragma unroll
      for (int l = 0; l < moves.count; ++l) {
        const Layer& layer = moves.layers[l];
        const ByteOf at[4] = {{j, layer.byte[0]}, {j, layer.byte[1]}, {j, layer.byte[2]}, {j, layer.byte[3]}};
        gathered[j] |= shifted(gather_bytes(words, at), layer);
      }
    }
#pragma unroll
    for (int m = 0; m < n; ++m) rows[m] = gather_bytes(gathered, map.back[m]);
  }
}

}  // namespace mxfp4
