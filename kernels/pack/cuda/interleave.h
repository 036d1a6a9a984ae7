// Gate and up rows that alternate in memory. A block processes both kinds of rows, so that it reads or writes one
// contiguous span. Rows that do not begin at multiples of 16 bytes share memory sectors with their neighbours, and a
// sector that two blocks write costs twice.
//
//     memory (the checkpoint's pairs)   g0 u0 g1 u1 g2 u2 g3 u3 g4 u4 ..
//
//     order.block 4, one part           g0 g1 g2 g3 u0 u1 u2 u3     rows of the storage; Interleave{4, 0}
//     place(r)                           0  2  4  6  1  3  5  7     so that slots are in memory's order
//
//     halves, two parts                 g0 g1 .. | u0 u1 ..         the second part begins `half` rows after the
//     place(r)                           0  2 ..    1  3 ..         first; Interleave{rows of a part, half}
#pragma once

#include <cstdint>

#include "kernels/layouts/matrix.h"
#include "kernels/pack/cuda/block.cuh"

namespace mxfp4 {

/// The rows of the storage in a block, and their order in memory.
struct Interleave {
  int rows = 0;      // consecutive rows of one view, which alternate with the other view's in memory; 0: in order
  int64_t half = 0;  // a block has two parts: rows from n on, n < half, and rows from n + half on; 0: one part
  /// The place of row r of the block, counted through its parts, in memory's order.
  MXFP4_HD constexpr int place(int r, bool up_first) const {
    if (rows == 0) return r;
    const bool second = r & rows;
    return (r & -2 * rows) | (r & (rows - 1)) * 2 | int(second != up_first);
  }
};

/// The interleave of the rows of m in blocks of L.
template <class L, class T>
constexpr Interleave interleave_of(const BasicMatrix<T>& m) {
  using Size = BlockSize<L>;
  const int64_t pair = 2 * m.real.b, block = m.order.block, half = m.padded.n / 2;
  const bool in_turn = m.views == 2 && m.view[0].stride == pair && m.view[1].stride == pair;
  if (!Size::can_pair || !in_turn || m.real.b % 16 == 0 || m.real.b > Size::cols - 16) return {};
  if (block > 0) return {(block & (block - 1)) == 0 && 2 * block <= Size::rows ? int(block) : 0, 0};
  const int64_t second = storage<L>(m.padded).n - half;  // rows, with the storage's padding
  if (half == 0 || half % L::tile_n != 0 || second > round_up(half, Size::rows)) return {};
  return {Size::rows, half};
}

}  // namespace mxfp4
