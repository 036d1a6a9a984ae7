// The bytes that one CUDA block moves, computed at compile time from a layout's three functions.
//
// A block holds rows x cols bytes of the storage, whole tiles, in shared memory: as rows, then as packed words. This
// works because every layout permutes address bits. The address bits of a block are those of the word w in its tile,
// then of the tile's place along a row, then of its place down the rows. Each bit moves the source by a power of two
// rows or bytes. Therefore the assignment of bytes to threads is a permutation of bits, and so is the order of stored
// words. The function is_regular() checks
// these permutations against at() and offset() for every word of a block.
//
//   unit      the bytes that one thread permutes in registers: 16 bytes of each of the 1, 2 or 4 rows that meet in a
//             word. It is 32 bytes if four packed words can then be stored at a time.
//   position  a word's place among the block's packed words, in the order of their offsets
#pragma once

#include <cstdint>

#include "kernels/layouts/layout.h"

namespace mxfp4 {

/// Bits that change places: a few rotations and masks.
struct BitMoves {
  uint32_t mask[32] = {};  // mask[r]: which bits of the result come from the value rotated right by r

  MXFP4_HD constexpr void move(int from, int to) { mask[(from - to) & 31] |= 1u << to; }
  MXFP4_HD constexpr uint32_t operator()(uint32_t value) const {
    uint32_t out = 0;
#pragma unroll
    for (int r = 0; r < 32; ++r)
      if (mask[r]) out |= (value >> r | value << ((32 - r) & 31)) & mask[r];
    return out;
  }
};

constexpr int log2_of(int power) {
  int bits = 0;
  while (1 << bits < power) ++bits;
  return bits;
}

/// Shared memory is addressed in chunks of 16 bytes. In rows of 128 bytes, chunk c of row r is at place c ^ ((r ^ r >>
/// 3) & 7). Eight threads that read one column of eight rows then use all banks.
///
///     place     0    1    2    3    4    5    6    7
///     row 2    c2   c3   c0   c1   c6   c7   c4   c5
///
/// A block of marlin.codes is 64 such rows, 16 tiles, which 128 threads pack. A unit is chunk c of rows r and r + 8,
/// which are 8 words. Word p of the block, in the order of offsets, is word p % 4 of chunk p / 4.
MXFP4_HD constexpr uint32_t swizzle(uint32_t chunk) { return chunk ^ ((chunk >> 3 ^ chunk >> 6) & 7); }

/// rows x cols: runs of 128 bytes of a row. Narrow tiles, such as those of scales, get twice the rows because their
/// runs of packed words are short. A block is one or two such parts (Interleave).
template <class L, int parts_ = 1>
struct BlockSize {
  static constexpr int parts = parts_;
  static constexpr int cols = L::tile_b > 128 ? L::tile_b : 128;
  static constexpr int least = L::tile_b < 8 ? 128 : 64;
  static constexpr int rows = L::tile_n > least ? L::tile_n : least;
  static constexpr int chunks = rows * cols / 16;
  static constexpr int chunks_per_thread = 4;
  static constexpr int threads = chunks / chunks_per_thread;
  static constexpr bool can_pair = L::tile_b <= 8 && !is_plain<L>;  // scales and biases: rows are narrow
  // Blocks of a multiprocessor: 20 KiB of loads under way, 48 registers a thread; 40 if loads need none.
  static constexpr int blocks_to_pack = 1280 / threads;
  static constexpr int blocks_to_unpack = threads < 256 || is_plain<L> ? blocks_to_pack : 1536 / threads;
};

/// Byte `byte` of register or word `word`.
struct ByteOf {
  int word = 0, byte = 0;
};

template <class L>
struct BlockMap {
  using Size = BlockSize<L>;
  static constexpr int w_bits = log2_of(words_per_tile<L>), tb_bits = log2_of(Size::cols / L::tile_b),
                       tn_bits = log2_of(Size::rows / L::tile_n), bits = w_bits + tb_bits + tn_bits;
  static constexpr int col_bits = log2_of(Size::cols);

  int row_of[bits] = {}, col_of[bits] = {};  // the rows or bytes that an address bit adds to the source
  int position_of[bits] = {};                // the bit of the position that an address bit is
  int unit[bits] = {}, unit_bits = 0;        // address bits within a unit, by column
  int lane[bits] = {}, lane_bits = 0;        // the others: the bits of a unit's number
  int rows = 1, row[4] = {};                 // rows of a unit, from its first
  int pieces = 0, piece[4] = {};             // its 16 bytes of a row, in chunks from its first, and their
  int piece_row[4] = {}, piece_col[4] = {};  // rows and columns
  int words = 0, position[16] = {};          // its words, and their positions from its first word's
  int quad[2] = {-1, -1};                    // the bits of j that are bits 0 and 1 of the position, if both are
  ByteOf from[16][4] = {};                   // byte i of word j comes from `word`: piece * 4 + column % 16 / 4
  ByteOf back[16][4] = {};                   // the inverse
  bool planar = false;                       // the bytes i of words 4m to 4m+3 are one source register

  BitMoves unit_chunk;     // number of a unit -> chunk of its first row in the block's rows
  BitMoves unit_position;  // number of a unit -> position of its first word
  BitMoves address;        // position -> address

  /// Large enough that no two address bits of a block share an offset.
  static constexpr Shape sample{4 * (L::store_n > Size::rows ? L::store_n : Size::rows),
                                4 * (L::store_b > Size::cols ? L::store_b : Size::cols)};
  static constexpr int64_t offset_of(int address) {
    const int w = address & ((1 << w_bits) - 1), tb = address >> w_bits & ((1 << tb_bits) - 1);
    return L::offset(sample, address >> (w_bits + tb_bits), tb, w) - L::offset(sample, 0, 0, 0);
  }
  static constexpr Byte source_of(int address, int i) {
    const int w = address & ((1 << w_bits) - 1), tb = address >> w_bits & ((1 << tb_bits) - 1);
    const Byte in_tile = L::at(w, i);
    return {(address >> (w_bits + tb_bits)) * L::tile_n + in_tile.n, tb * L::tile_b + in_tile.b};
  }

  constexpr BlockMap() {
    for (int k = 0; k < bits; ++k) {
      const Byte first = source_of(0, 0), next = source_of(1 << k, 0);
      row_of[k] = next.n - first.n;
      col_of[k] = next.b - first.b;
      for (int other = 0; other < bits; ++other) position_of[k] += offset_of(1 << other) < offset_of(1 << k);
      address.move(position_of[k], k);
    }
    find_unit();
    order_lanes();
    find_bytes();
  }

 private:
  /// The address bit at a position moves along a row: then a unit can hold both its values.
  constexpr bool is_column(int at_position) const {
    for (int k = 0; k < bits; ++k)
      if (position_of[k] == at_position) return col_of[k] > 0;
    return false;
  }

  constexpr void find_unit() {
    const bool whole_chunks = is_column(0) && is_column(1);
    int wide = Size::cols;  // the column bit from 16 on that a unit has, if any
    for (int column = 1; column < Size::cols; column *= 2)
      for (int k = 0; k < bits; ++k)
        if (col_of[k] == column && (column < 16 || (whole_chunks && position_of[k] < 2))) {
          if (column >= 16) wide = column;
          if (whole_chunks && position_of[k] < 2) quad[position_of[k]] = unit_bits;
          unit[unit_bits++] = k;
        }
    for (int i = 1; i < 4; i *= 2) {
      const int n = source_of(0, i).n - source_of(0, 0).n;
      if (n == 0) continue;
      for (int r = 0; r < rows; ++r) row[rows + r] = row[r] + n;
      rows *= 2;
    }
    for (int r = 0; r < rows; ++r)
      for (int column = 0; column <= wide && column < Size::cols; column += wide) {
        piece_row[pieces] = row[r];
        piece_col[pieces] = column;
        piece[pieces++] = (row[r] * Size::cols + column) / 16;
      }
    words = 4 * pieces;
    for (int j = 0; j < words; ++j)
      for (int k = 0; k < unit_bits; ++k) position[j] |= (j >> k & 1) << position_of[unit[k]];
    planar = unit_bits >= 2 && col_of[unit[0]] == 1 && col_of[unit[1]] == 2;
  }

  /// Eight lanes read eight rows, one bank group each; then lanes follow the packed words.
  constexpr void order_lanes() {
    bool used[bits] = {};
    for (int k = 0; k < unit_bits; ++k) used[unit[k]] = true;
    const auto take = [&](const int(&key)[bits]) {
      int best = -1;
      for (int k = 0; k < bits; ++k)
        if (!used[k] && key[k] >= 0 && (best < 0 || key[k] < key[best])) best = k;
      if (best < 0) return;
      used[best] = true;
      lane[lane_bits++] = best;
    };
    int row_key[bits] = {};
    for (int k = 0; k < bits; ++k) row_key[k] = row_of[k] ? row_of[k] : -1;
    for (int k = 0; k < 3; ++k) take(row_key);
    while (lane_bits < bits - unit_bits) take(position_of);
    for (int k = 0; k < lane_bits; ++k) {
      unit_position.move(k, position_of[lane[k]]);
      unit_chunk.move(k, (row_of[lane[k]] ? log2_of(row_of[lane[k]]) + col_bits : log2_of(col_of[lane[k]])) - 4);
    }
  }

  constexpr void find_bytes() {
    for (int j = 0; j < words; ++j)
      for (int i = 0; i < 4; ++i) {
        int address = 0;
        for (int k = 0; k < unit_bits; ++k) address |= (j >> k & 1) << unit[k];
        const Byte at = source_of(address, i), first = source_of(0, 0);
        const int n = at.n - first.n, b = at.b - first.b;
        int p = 0;
        while (p < pieces - 1 && !(piece_row[p] == n && piece_col[p] == b / 16 * 16)) ++p;
        from[j][i] = {p * 4 + b % 16 / 4, b % 4};
        back[from[j][i].word][from[j][i].byte] = {j, i};
      }
  }
};

/// Whether BlockMap is right for every byte of a block, and four contiguous words can be moved as one.
template <class L>
constexpr bool is_regular() {
  using Map = BlockMap<L>;
  constexpr Map map;
  if (map.unit_bits + map.lane_bits != Map::bits || map.words != 1 << map.unit_bits) return false;
  if (Map::offset_of(map.address(1)) != 4 || Map::offset_of(map.address(2)) != 8) return false;
  for (int u = 0; u < 1 << map.lane_bits; ++u) {
    const int chunk = int(map.unit_chunk(u));
    for (int j = 0; j < map.words; ++j) {
      const int position = int(map.unit_position(u)) | map.position[j], address = int(map.address(position));
      int64_t offset = 0;
      for (int k = 0; k < Map::bits; ++k) offset += (address >> k & 1) * Map::offset_of(1 << k);
      if (offset != Map::offset_of(address)) return false;
      for (int i = 0; i < 4; ++i) {
        const ByteOf from = map.from[j][i];
        const int byte = (chunk + map.piece[from.word / 4]) * 16 + from.word % 4 * 4 + from.byte;
        const int n = byte >> Map::col_bits, b = byte & ((1 << Map::col_bits) - 1);
        const Byte want = Map::source_of(address, i);
        if (n != want.n || b != want.b) return false;
      }
    }
  }
  return true;
}

}  // namespace mxfp4
