// One expert's matrix as input of the packer: strided views of the checkpoint's rows, the row order of the packed
// matrix, and the bytes of pads.
#pragma once

#include <cstdint>

#include "kernels/hd.h"
#include "kernels/layouts/layout.h"

namespace mxfp4 {

/// Row r begins at data + r * stride. Interleaved gate and up rows are two views with twice the stride.
template <class T>
struct BasicRows {
  T* data = nullptr;
  int64_t stride = 0;
};

/// How w13 interleaves gate and up: alternating blocks of `block` rows. block 0: two halves. block 1: pairs.
struct RowOrder {
  int64_t block = 0;
  bool up_first = false;
  friend constexpr bool operator==(const RowOrder&, const RowOrder&) = default;
};

/// The source of row n of the packed matrix: view 0 (gate, or w2's only view) or 1 (up), and the row in that view.
struct RowSource {
  int view;
  int64_t row;
};

/// The value of one kind of pads: one byte, or four bytes that repeat from the first byte of a row on, for elements of
/// two or four bytes. Only layouts by modes without `add` have four bytes.
struct PadByte {
  uint32_t four = 0;
  constexpr PadByte() = default;
  MXFP4_HD constexpr PadByte(uint8_t byte) : four(byte * 0x01010101u) {}
  /// An element of `width` bytes: 1, 2 or 4.
  static constexpr PadByte of(uint32_t element, int64_t width) {
    PadByte p;
    for (int64_t b = 0; b < 4; ++b) p.four |= (element >> 8 * (b % width) & 0xFF) << 8 * b;
    return p;
  }
  /// Byte b of a row.
  MXFP4_HD constexpr uint8_t at(int64_t b) const { return uint8_t(four >> b % 4 * 8); }
  constexpr bool is_one() const { return four == at(0) * 0x01010101u; }
  friend constexpr bool operator==(const PadByte&, const PadByte&) = default;
};

/// The values of the rows and columns that the checkpoint does not have, before `add`.
struct PadBytes {
  PadByte row = 0;       // rows beyond the real ones, in the columns of the real rows
  PadByte column = 0;    // the tail of a real row, up to the engine's padded size
  PadByte storage = 0;   // the layout's own padding beyond the engine's size
  PadByte corner = row;  // the tail of a row beyond the real ones
  friend constexpr bool operator==(const PadBytes&, const PadBytes&) = default;
};

/// views: 1 (w2) or 2 (w13: gate, up), each `real.n` rows of `real.b` bytes.
/// padded: the engine's size of the whole matrix, before a layout's own storage padding.
/// add: added to every byte, including pads, modulo 256 (Marlin with FP8 activations: scale bytes + 6).
template <class T>
struct BasicMatrix {
  BasicRows<T> view[2];
  int views = 1;
  Shape real, padded;
  RowOrder order;
  PadBytes pad;
  uint8_t add = 0;

  /// Int: a type for the division, which is slow in 64 bits on a GPU.
  template <class Int = int64_t>
  MXFP4_HD constexpr RowSource source(Int n) const {
    if (views == 1) return {0, n};
    const Int half = Int(padded.n / 2), block = Int(order.block);
    if (block == 0) return {int(n >= half) ^ int(order.up_first), n >= half ? n - half : n};
    const Int blocks = n / block;  // the one division
    return {int(blocks % 2) ^ int(order.up_first), blocks / 2 * block + (n - blocks * block)};
  }
  /// How many rows from n on come from consecutive rows of one view.
  MXFP4_HD constexpr int64_t rows_together(int64_t n) const {
    if (views == 1) return padded.n - n;
    const int64_t block = order.block ? order.block : padded.n / 2;
    return block - n % block;
  }
  /// The byte that a pad position (n, b) of the storage holds before `add`; only for positions that are pads.
  MXFP4_HD constexpr uint8_t pad_byte(int64_t n, int64_t b) const {
    if (n >= padded.n || b >= padded.b) return pad.storage.at(b);
    if (source(n).row < real.n) return pad.column.at(b);
    return (b < real.b ? pad.row : pad.corner).at(b);
  }
};

/// Bytes of further copies, of a layout that stores every bit several times, that differ from the copy that is read;
/// `at` is the first, in the packed matrix.
struct CopyReport {
  int64_t wrong = 0, at = 0;
};

/// Pad bytes of one packed matrix that have a wrong value; (n, b) is the first, in storage coordinates.
struct PadReport {
  int64_t wrong = 0;
  int64_t n = 0, b = 0;
  uint8_t is = 0, expected = 0;
  CopyReport copies = {};
};

using Rows = BasicRows<const uint8_t>;
using MutableRows = BasicRows<uint8_t>;
using Matrix = BasicMatrix<const uint8_t>;
using MutableMatrix = BasicMatrix<uint8_t>;

}  // namespace mxfp4
