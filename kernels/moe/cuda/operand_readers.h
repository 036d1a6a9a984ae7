// Packed words as operands of the tensor core: the 16 bytes that a lane fetches, and the place of each element of the A
// operand in a word. It is derived from the hardware: no code here uses kernels/layouts/layout.h.
//
// A operand of mma.m16n8k16 and of one warp's part of wgmma.m64nNk16, weights as its 16 rows; lane = 4g + t:
//
//                 k: 2t 2t+1 | 2t+8 2t+9
//     row g           a0     |     a2          each a is two bf16, even k in the low half
//     row g + 8       a1     |     a3
//
// Every format keeps these eight codes of a lane in one 32-bit word. The unit of work is 64 rows (four 16-row tiles) x
// 64 codes: 2048 bytes, 128 pieces of 16 bytes. A warp fetches 512 bytes at a time, a chunk; shared memory then holds
// the unit as four parts of 512 bytes:
//
//     Marlin         part = k16 step, a piece holds the lane's words of the four tiles
//     Humming        as Marlin
//     Triton Hopper  part = tile,     a piece holds the lane's words of the four k16 steps
//     FlashInfer     part = tile,     a piece is 16 bytes of one row: the words of four lanes, for one k16 step
//
// FlashInfer keeps rows whole, so its units are fetched in spans of two, 64 bytes of a row at once. Scales are fetched
// with the span, 128 or 256 bytes. One word for each tile and lane has the bytes (row g, group 0), (row g+8, group 0),
// (row g, group 1), (row g+8, group 1).
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>

#include "kernels/hd.h"

namespace mxfp4 {

inline constexpr int unit_rows = 64, unit_k = 64, unit_bytes = 2048;

/// The addresses of one matrix of every expert. Steps and strides are in bytes.
struct OperandMatrix {
  const uint8_t *words = nullptr, *scales = nullptr;
  int64_t word_stride = 0, scale_stride = 0;  // from expert to expert
  int n = 0, k = 0;                           // the engine's rows; codes of a row, a multiple of a span
  int row_bytes =
      0;  // Marlin, Humming: a k16 row of tiles. FlashInfer: a row. Triton: a storage row (4 rows of the matrix)
  int k_step = 0;      // from one span to the next
  int chunk_step = 0;  // from chunk to chunk of a span
  int scale_row = 0;   // Triton, Humming: bytes of a storage row of scales. FlashInfer v2: of 64 rows. Else 0
  int scale_step = 0;  // from one span's scales to the next
  int exponent = 0;    // scales are applied as 2^(byte - 127 + exponent - 126), see operand_scale
};

template <class T>
MXFP4_HD inline T load(const uint8_t* p) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const T*>(p);
#else
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
#endif
}

struct alignas(8) Word2 {
  uint32_t v[2];
};
struct alignas(16) Word4 {
  uint32_t v[4];
};

/// Byte i of the result is byte (selector >> 4i & 7) of the eight bytes b:a, a lowest.
MXFP4_HD inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, selector);
#else
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) out |= uint32_t((uint64_t(b) << 32 | a) >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return out;
#endif
}

/// Converts two E2M1 codes to bf16 bits, one in each half of `w`, with the sign at bit kSign and the other bits at
/// kRest to kRest + 2. The result is the code's value times 2^-126: the two low exponent bits and the first mantissa
/// bit are those of the code.
template <int kSign, int kRest>
MXFP4_HD constexpr uint32_t spread(uint32_t w) {
  constexpr auto move = [](uint32_t x, int by) { return by > 0 ? x << by : x >> -by; };
  return (move(w, 15 - kSign) & 0x80008000u) | (move(w, 6 - kRest) & 0x01c001c0u);
}

/// spread() for the lowest nibble of each half, and for the nibble above. The multiplication copies the nibble to the
/// place of its sign and to the place of its other bits; it uses a pipe that the masks leave free.
MXFP4_HD constexpr uint32_t spread_nibble_0(uint32_t w) { return (w & 0x000f000fu) * 0x1040u & 0x81c081c0u; }
MXFP4_HD constexpr uint32_t spread_nibble_1(uint32_t w) { return (w & 0x00f000f0u) * 0x0104u & 0x81c081c0u; }

/// The factor for both halves of an `a` register: the bf16 whose exponent field is byte + exponent. The product with
/// code * 2^-126 is code * 2^(byte - 127) * 2^(exponent - 126). It is exact if byte + exponent is in 121..254. As in
/// the engines' kernels, byte 255 with exponent 0 is infinite, and byte 0 with exponent 0 is 0.
MXFP4_HD inline uint32_t operand_scale(uint32_t scale_word, int group, int half, int exponent) {
  const uint32_t byte = uint32_t(2 * group + half);
  return pick_bytes(scale_word, 0, byte | 4 << 4 | byte << 8 | 4 << 12) * 128 + uint32_t(exponent) * 0x00800080u;
}

/// Largest exponent that keeps every scale of a matrix finite; products are then multiplied by 2^(126 - exponent).
MXFP4_HD constexpr int operand_exponent(int largest_byte) {
  return largest_byte >= 254 ? 0 : largest_byte <= 128 ? 126 : 254 - largest_byte;
}

/// I32 [K/16, 2N]: tiles of 64 rows x 16 codes, rows innermost.
struct MarlinReader {
  static constexpr int span = 1, scale_bytes = 128;
  static constexpr const char* name = "marlin";
  MXFP4_HD static int64_t source(const OperandMatrix&, int row, int lane) {
    return int64_t(row / 64) * 512 + lane * 16;
  }
  MXFP4_HD static int chunk_step(const OperandMatrix& m, int, int chunk) { return chunk * m.chunk_step; }
  MXFP4_HD static int target(int chunk, int lane) { return chunk * 512 + lane * 16; }

  /// words[i][s]: tile first + i, k16 step s.
  template <int kTiles>
  MXFP4_HD static void words(const uint8_t* unit, int first, int lane, uint32_t (&w)[kTiles][4]) {
    for (int s = 0; s < 4; s++) {
      const uint8_t* p = unit + s * 512 + lane * 16 + first * 4;
      if constexpr (kTiles == 4) {
        const Word4 v = load<Word4>(p);
        for (int i = 0; i < 4; i++) w[i][s] = v.v[i];
      } else if constexpr (kTiles == 2) {
        const Word2 v = load<Word2>(p);
        for (int i = 0; i < 2; i++) w[i][s] = v.v[i];
      } else {
        for (int i = 0; i < kTiles; i++) w[i][s] = load<uint32_t>(p + i * 4);
      }
    }
  }
  /// Nibbles 0..3 of each half: a0, a2, a1, a3.
  MXFP4_HD static void decode(uint32_t w, uint32_t (&a)[4]) {
    a[0] = spread_nibble_0(w), a[2] = spread_nibble_1(w), a[1] = spread_nibble_0(w >> 8), a[3] = spread<15, 12>(w);
  }

  /// E8M0 [K/32, N]; of 64 rows, the eight g + 8j are contiguous, in the order j = 0 2 1 3 4 6 5 7.
  static constexpr int scale_pieces = 8;
  MXFP4_HD static int64_t scale_source(const OperandMatrix& m, int row, int piece) {
    return int64_t(piece / 4) * m.n + row + piece % 4 * 16;
  }
  MXFP4_HD static uint32_t scale(const uint8_t* s, int tile, int g, int) {
    const uint32_t lo = load<uint32_t>(s + 8 * g + tile / 2 * 4), hi = load<uint32_t>(s + 64 + 8 * g + tile / 2 * 4);
    return pick_bytes(lo, hi, tile % 2 ? 0x7531 : 0x6420);
  }
  /// BF16 [N]; in each 32 rows, 2i + 8a + b is at 8i + 2a + b.
  MXFP4_HD static int bias_index(int n) { return n / 32 * 32 + n % 8 / 2 * 8 + n % 32 / 8 * 2 + n % 2; }
};

/// Marlin's words in storage of more rows. Of 64 rows' scales, the eight g + 8j are contiguous, in the order of j.
struct HummingReader : MarlinReader {
  static constexpr const char* name = "humming";
  MXFP4_HD static int64_t scale_source(const OperandMatrix& m, int row, int piece) {
    return int64_t(piece / 4) * m.scale_row + row + piece % 4 * 16;
  }
  MXFP4_HD static uint32_t scale(const uint8_t* s, int tile, int g, int) {
    const uint32_t lo = load<uint32_t>(s + 8 * g + tile / 2 * 4), hi = load<uint32_t>(s + 64 + 8 * g + tile / 2 * 4);
    return pick_bytes(lo, hi, tile % 2 ? 0x7632 : 0x5410);
  }
};

/// Up to humming-kernels 0.1.16. Nibbles 0..3 of each half: a0, a1, a2, a3.
struct HummingWgmmaReader : HummingReader {
  static constexpr const char* name = "humming_wgmma";
  MXFP4_HD static void decode(uint32_t w, uint32_t (&a)[4]) {
    a[0] = spread_nibble_0(w), a[1] = spread_nibble_1(w), a[2] = spread_nibble_0(w >> 8), a[3] = spread<15, 12>(w);
  }
};

/// Bits of a FlashInfer v2 or Triton Hopper word, per half: a0 sign 15, rest 8..6; a1 12, 5..3; a2 9, 2..0;
/// a3 sign 14, exponent 11..10, mantissa 13.
MXFP4_HD constexpr void decode_hopper(uint32_t w, uint32_t (&a)[4]) {
  a[0] = spread<15, 6>(w), a[1] = spread<12, 3>(w), a[2] = spread<9, 0>(w);
  a[3] = (w << 1 & 0x80008000u) | (w >> 3 & 0x01800180u) | (w >> 7 & 0x00400040u);
}

/// U8 [N/4, 2K], both padded: a storage row is rows 2r, 2r+1, 2r+8, 2r+9 of a tile, 128 bytes for 64 codes.
struct TritonReader {
  static constexpr int span = 1, scale_bytes = 128;
  static constexpr const char* name = "triton_hopper";
  MXFP4_HD static int64_t source(const OperandMatrix& m, int row, int lane) {
    return (int64_t(row / 4) + lane / 8) * m.row_bytes + lane % 8 * 16;
  }
  MXFP4_HD static int chunk_step(const OperandMatrix& m, int row, int chunk) {
    return row + chunk * 16 < m.n ? chunk * m.chunk_step : 0;  // the last unit may have fewer than four tiles
  }
  MXFP4_HD static int target(int chunk, int lane) { return chunk * 512 + lane * 16; }
  template <int kTiles>
  MXFP4_HD static void words(const uint8_t* unit, int first, int lane, uint32_t (&w)[kTiles][4]) {
    for (int i = 0; i < kTiles; i++) {
      const Word4 v = load<Word4>(unit + (first + i) * 512 + lane * 16);
      for (int s = 0; s < 4; s++) w[i][s] = v.v[s];
    }
  }
  MXFP4_HD static void decode(uint32_t w, uint32_t (&a)[4]) { decode_hopper(w, a); }

  /// U8 [N/32, K]: storage row tile / 16 * 8 + tile % 8; 64 codes are 64 bytes, half of them for tiles 8..15.
  static constexpr int scale_pieces = 8;
  MXFP4_HD static int64_t scale_source(const OperandMatrix& m, int row, int piece) {
    const int tile = row / 16 + piece / 2;
    return int64_t(tile / 16 * 8 + tile % 8) * m.scale_row + tile / 8 % 2 * 32 + piece % 2 * 16;
  }
  MXFP4_HD static uint32_t scale(const uint8_t* s, int tile, int g, int) {
    return load<uint32_t>(s + tile * 32 + g * 4);
  }
  MXFP4_HD static int bias_index(int n) { return n; }
};

/// U8 [N, K/2]: 32 bytes of a row are 64 codes of rows r and r+8. The word of lane (g, t) for k16 step s is in row g +
/// 8 * (s % 2) at byte 16 * (s / 2) + 4t.
struct FlashinferReader {
  static constexpr int span = 2, scale_bytes = 256;
  /// A chunk is 64 bytes of eight rows, half of them for each unit. The 32 bytes of a row stay together, because a
  /// fetch that scatters a sector costs two; their halves are exchanged in rows 4..7, against bank conflicts.
  MXFP4_HD static int64_t source(const OperandMatrix& m, int row, int lane) {
    return (int64_t(row) + lane / 4) * m.row_bytes + lane % 4 * 16;
  }
  MXFP4_HD static int chunk_step(const OperandMatrix& m, int, int chunk) { return chunk * m.chunk_step; }
  MXFP4_HD static int target(int chunk, int lane) {
    return lane % 4 / 2 * unit_bytes + chunk * 256 + lane / 4 * 32 + (lane % 2 ^ lane / 16) * 16;
  }
  template <int kTiles>
  MXFP4_HD static void words(const uint8_t* unit, int first, int lane, uint32_t (&w)[kTiles][4]) {
    for (int i = 0; i < kTiles; i++)
      for (int s = 0; s < 4; s++)
        w[i][s] = load<uint32_t>(unit + (first + i) * 512 + s % 2 * 256 + lane / 4 * 32 + (s / 2 ^ lane / 16) * 16 +
                                 lane % 4 * 4);
  }
  static constexpr int scale_pieces = 16;
  MXFP4_HD static int bias_index(int n) { return n; }
};

struct FlashinferV2Reader : FlashinferReader {
  static constexpr const char* name = "flashinfer_v2";
  MXFP4_HD static void decode(uint32_t w, uint32_t (&a)[4]) { decode_hopper(w, a); }
  /// [N/64, K/128, 16, 16]: row 16m + f of 64, group j of four at 16f + 4m + j.
  MXFP4_HD static int64_t scale_source(const OperandMatrix& m, int row, int piece) {
    return int64_t(row / 64) * m.scale_row + piece * 16;
  }
  MXFP4_HD static uint32_t scale(const uint8_t* s, int tile, int g, int k_block) {
    return pick_bytes(load<uint32_t>(s + g * 16 + tile * 4), load<uint32_t>(s + g * 16 + 128 + tile * 4),
                      k_block % 2 ? 0x7362 : 0x5140);
  }
};

struct FlashinferV1Reader : FlashinferReader {
  static constexpr const char* name = "flashinfer_v1";
  /// Byte i holds row g in its low and row g+8 in its high nibble, for k = 2t, 2t+1, 2t+8, 2t+9.
  MXFP4_HD static void decode(uint32_t w, uint32_t (&a)[4]) {
    const uint32_t lo = pick_bytes(w, 0, 0x1100), hi = pick_bytes(w, 0, 0x3322);
    a[0] = spread_nibble_0(lo);
    a[1] = spread_nibble_1(lo);
    a[2] = spread_nibble_0(hi);
    a[3] = spread_nibble_1(hi);
  }
  /// [K/128, 4N]: the four groups of 128 codes of a row together.
  MXFP4_HD static int64_t scale_source(const OperandMatrix&, int row, int piece) {
    return int64_t(row) * 4 + piece * 16;
  }
  MXFP4_HD static uint32_t scale(const uint8_t* s, int tile, int g, int k_block) {
    return pick_bytes(load<uint32_t>(s + (tile * 16 + g) * 4), load<uint32_t>(s + (tile * 16 + g + 8) * 4),
                      k_block % 2 ? 0x7362 : 0x5140);
  }
};

/// The interface that the kernels require of a format. A span is one or two units along k.
template <class R>
concept OperandReader = requires(const OperandMatrix& m, const uint8_t* p, uint32_t (&tiles)[4][4], uint32_t (&a)[4]) {
  requires R::span == 1 || R::span == 2;
  requires R::scale_bytes == 16 * R::scale_pieces;        // of a unit's scales
  { R::source(m, 0, 0) } -> std::same_as<int64_t>;        // of row and lane: where the lane's 16 bytes begin
  { R::chunk_step(m, 0, 0) } -> std::same_as<int>;        // of row and chunk: from the unit's first chunk
  { R::target(0, 0) } -> std::same_as<int>;               // of chunk and lane: their place in shared memory
  { R::scale_source(m, 0, 0) } -> std::same_as<int64_t>;  // of row and piece
  { R::scale(p, 0, 0, 0) } -> std::same_as<uint32_t>;     // of tile, g and block of 64 codes: see above
  { R::bias_index(0) } -> std::same_as<int>;              // of a row
  R::template words<4>(p, 0, 0, tiles);                   // of the first tile and lane: words[tile][k16 step]
  R::decode(0u, a);
};

}  // namespace mxfp4
