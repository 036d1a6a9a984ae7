// A block's rows between global memory and shared memory: row order, padding and `add` applied on the way in, pads
// checked on the way out. Rows of the checkpoint begin at any byte.
#pragma once

#include <cstdint>

#include "kernels/cuda/batch.h"
#include "kernels/cuda/block.cuh"

namespace mxfp4 {

/// One row of the block: `real` bytes in global memory, then pads. data: null where there are none.
struct alignas(16) RowSlot {
  uint8_t* data;
  int real;
  uint32_t pad;  // up to the padded width: the byte four times, before `add`
  /// Bytes from a multiple of `to` to the row.
  __device__ __forceinline__ int skew(int to) const { return int(reinterpret_cast<uintptr_t>(data)) & (to - 1); }
};

/// First row and byte of the block in the storage.
struct Corner {
  int n, b;
};

template <class Size>
__device__ __forceinline__ Corner corner() {
  return {int(blockIdx.y) * Size::rows, int(blockIdx.x) * Size::cols};
}

__device__ __forceinline__ const Batch::Item& item(const Batch& batch) { return batch.items[blockIdx.z]; }

/// Columns that the storage has in the block.
template <class Size>
__device__ __forceinline__ int width_here(const Batch& batch, Corner at) {
  return min(int(batch.storage.b) - at.b, Size::cols);
}

/// Of these, columns that the views' rows have.
template <class Size>
__device__ __forceinline__ int real_here(const Batch& batch, Corner at) {
  return max(min(int(batch.matrix.real.b) - at.b, width_here<Size>(batch, at)), 0);
}

__device__ __forceinline__ uint32_t four(uint8_t byte) { return byte * 0x01010101u; }

/// The rows of the views. True if the thread met one of the storage that is a pad as a whole.
template <class Size>
__device__ __forceinline__ bool find_rows(const Batch& batch, Corner at, RowSlot* slots) {
  static_assert(Size::rows <= Size::threads);
  if (threadIdx.x >= Size::rows) return false;
  const MutableMatrix& m = batch.matrix;
  const int n = at.n + int(threadIdx.x);
  RowSlot slot{nullptr, 0, four(m.pad.storage)};
  bool real = false;
  if (n < int(m.padded.n)) {
    const RowSource source = m.source(uint32_t(n));
    real = source.row < m.real.n;
    slot.pad = four(real ? m.pad.column : m.pad.row);
    if (real && at.b < int(m.real.b)) {
      slot.data = item(batch).view[source.view] + source.row * m.view[source.view].stride + at.b;
      slot.real = real_here<Size>(batch, at);
    }
  }
  slots[threadIdx.x] = slot;
  return n < int(batch.storage.n) && !real;
}

/// The rows of a packed matrix whose layout is plain.
template <class Size>
__device__ __forceinline__ void find_packed_rows(const Batch& batch, Corner at, RowSlot* slots) {
  if (threadIdx.x >= Size::rows) return;
  const int64_t n = at.n + int(threadIdx.x);
  slots[threadIdx.x] = n < batch.storage.n
                           ? RowSlot{item(batch).packed + n * batch.storage.b + at.b, width_here<Size>(batch, at), 0}
                           : RowSlot{};
}

/// A mask of the first n bytes of a word, for any n.
__device__ __forceinline__ uint32_t first_bytes(int n) { return __funnelshift_lc(~0u, 0, max(8 * n, 0)); }

/// What columns c to c+3 of a row's pads hold: `row` up to the padded width, then `storage`.
struct PadWord {
  uint32_t mask, storage;
  __device__ __forceinline__ PadWord(const Batch& batch, Corner at, int c) {
    mask = first_bytes(int(batch.matrix.padded.b) - at.b - c);
    storage = four(batch.matrix.pad.storage) & ~mask;
  }
  __device__ __forceinline__ uint32_t operator()(uint32_t row) const { return (row & mask) | storage; }
};

/// What becomes of sixteen bytes from column c on of a row that has `real` columns: bytes & mask | pads.
struct Padding {
  uint4 mask, pads;
  __device__ __forceinline__ Padding(const Batch& batch, Corner at, int c, int real, uint32_t pad) {
    mask = make_uint4(first_bytes(real - c), first_bytes(real - c - 4), first_bytes(real - c - 8),
                      first_bytes(real - c - 12));
    const auto word = [&](int i, uint32_t m) { return PadWord(batch, at, c + 4 * i)(pad) & ~m; };
    pads = make_uint4(word(0, mask.x), word(1, mask.y), word(2, mask.z), word(3, mask.w));
  }
  __device__ __forceinline__ uint4 operator()(const uint4& x) const {
    return make_uint4((x.x & mask.x) | pads.x, (x.y & mask.y) | pads.y, (x.z & mask.z) | pads.z,
                      (x.w & mask.w) | pads.w);
  }
};

/// Words of the shared rows, counted through all of them.
__device__ __forceinline__ uint32_t swizzled_word(uint32_t w) { return swizzle(w >> 2) << 2 | (w & 3); }

/// Sixteen of 24 bytes, from byte `skew` on, of 0 to 7.
__device__ __forceinline__ uint4 funnel(uint2 a, uint2 b, uint2 c, int skew) {
  const bool word = skew & 4;
  const uint32_t v = word ? a.y : a.x, w = word ? b.x : a.y, x = word ? b.y : b.x, y = word ? c.x : b.y,
                 z = word ? c.y : c.x;
  const int bits = 8 * (skew & 3);
  return make_uint4(__funnelshift_r(v, w, bits), __funnelshift_r(w, x, bits), __funnelshift_r(x, y, bits),
                    __funnelshift_r(y, z, bits));
}

/// `add` added to each byte.
__device__ __forceinline__ uint4 plus(const uint4& x, uint8_t add) {
  if (add == 0) return x;
  const uint32_t adds = four(add);
  return make_uint4(__vadd4(x.x, adds), __vadd4(x.y, adds), __vadd4(x.z, adds), __vadd4(x.w, adds));
}

/// Global rows that begin and end at multiples of 16 to shared rows.
template <class Size>
__device__ __forceinline__ void load_aligned(const Batch& batch, Corner at, const RowSlot* slots, uint8_t add,
                                             uint4* rows) {
  constexpr int across = Size::cols / 16, down = Size::threads / across, steps = Size::chunks_per_thread;
  const int c = threadIdx.x % across * 16;
  uint4 x[steps];
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    const RowSlot slot = slots[threadIdx.x / across + k * down];
    x[k] =
        c < slot.real ? __ldg(reinterpret_cast<const uint4*>(slot.data + c)) : Padding(batch, at, c, 0, slot.pad).pads;
  }
#pragma unroll
  for (int k = 0; k < steps; ++k) rows[swizzle(threadIdx.x) ^ swizzle(k * Size::threads)] = plus(x[k], add);
}

/// Global rows that begin and end anywhere to shared rows: for each sixteen bytes the aligned pairs of words that they
/// are in. pad_rows: not all rows of the block are real. What is beyond the storage's width does not matter.
template <class Size>
__device__ __forceinline__ void load_unaligned(const Batch& batch, Corner at, const RowSlot* slots, bool pad_rows,
                                               uint8_t add, uint4* rows) {
  constexpr int across = Size::cols / 16, down = Size::threads / across, steps = Size::chunks_per_thread;
  const int c = threadIdx.x % across * 16;
  if (c >= width_here<Size>(batch, at)) return;
  const RowSlot* const slot = slots + threadIdx.x / across;
  uint2 x[steps][3];
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    const int skew = slot[k * down].skew(8), left = slot[k * down].real + skew - c;
    const uint2* const from = reinterpret_cast<const uint2*>(slot[k * down].data - skew + c);
#pragma unroll
    for (int i = 0; i < 3; ++i)
      if (8 * i < left) x[k][i] = __ldg(from + i);
  }
  const Padding padding(batch, at, c, slot->real, slot->pad);
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    const RowSlot& row = slot[k * down];
    const uint4 y = funnel(x[k][0], x[k][1], x[k][2], row.skew(8));
    rows[swizzle(threadIdx.x) ^ swizzle(k * Size::threads)] =
        plus(pad_rows ? Padding(batch, at, c, row.real, row.pad)(y) : padding(y), add);
  }
}

/// Global rows to shared rows, `add` added to each byte. bits: of all rows' beginnings, strides and lengths.
template <class Size>
__device__ __forceinline__ void load_rows(const Batch& batch, Corner at, const RowSlot* slots, uint32_t bits,
                                          bool pad_rows, uint8_t add, uint4* rows) {
  if (bits % 16 == 0)
    load_aligned<Size>(batch, at, slots, add, rows);
  else
    load_unaligned<Size>(batch, at, slots, pad_rows, add, rows);
}

/// Add to every byte of the shared rows. Between barriers.
template <class Size>
__device__ __forceinline__ void add_to_rows(uint8_t add, uint4* rows) {
  for (int q = threadIdx.x; q < Size::chunks; q += Size::threads) rows[q] = plus(rows[q], add);
}

/// Columns c to c+3 of row r of the shared rows; what is outside the row does not matter to the caller.
template <class Size>
__device__ __forceinline__ uint32_t shared_word(const uint4* rows, int r, int c) {
  const uint32_t* words = reinterpret_cast<const uint32_t*>(rows);
  const auto at = [&](int w) {
    return words[swizzled_word(uint32_t(r * (Size::cols / 4) + w) & (Size::rows * Size::cols / 4 - 1))];
  };
  const int w = c >> 2;
  return c & 3 ? __funnelshift_r(at(w), at(w + 1), 8 * (c & 3)) : at(w);
}

/// Sixteen bytes from column c on, any c, of the shared row whose first chunk is `row`, swizzled; those outside the row
/// do not matter to the caller.
template <class Size>
__device__ __forceinline__ uint4 shared_bytes(const uint4* rows, uint32_t row, int c) {
  constexpr uint32_t across = Size::cols / 16;
  const uint32_t q = uint32_t(c >> 4);
  const uint2* const low = reinterpret_cast<const uint2*>(rows + (row ^ swizzle(q % across)));
  const uint2* const high = reinterpret_cast<const uint2*>(rows + (row ^ swizzle((q + 1) % across)));
  const bool second = c & 8;
  return funnel(second ? low[1] : low[0], second ? high[0] : low[1], second ? high[1] : high[0], c & 7);
}

/// What rows have of their first and last aligned chunks, where these are not whole. T: rows begin and end at multiples
/// of it.
template <class Size, class T>
__device__ __forceinline__ void store_edges(const RowSlot* slots, const uint4* rows) {
  constexpr int lanes = 16 / sizeof(T), step = Size::threads / lanes;
  const int lane = threadIdx.x % lanes * int(sizeof(T)), first = threadIdx.x / lanes;
  const auto store = [&](const RowSlot& slot, int r, int c) {
    const uint4* const chunk = rows + (swizzle(r * (Size::cols / 16)) ^ swizzle(uint32_t(c) >> 4));
    __stcs(reinterpret_cast<T*>(slot.data + c), reinterpret_cast<const T*>(chunk)[uint32_t(c) % 16 / sizeof(T)]);
  };
  for (int r = first; r < Size::rows; r += step) {
    const RowSlot slot = slots[r];
    const int skew = slot.skew(16), c = lane - skew;
    if (c >= 0 && c < slot.real && (skew > 0 || slot.real < 16)) store(slot, r, c);
  }
  for (int r = first; r < Size::rows; r += step) {
    const RowSlot slot = slots[r];
    const int skew = slot.skew(16), chunk = (skew + slot.real) & ~15, c = chunk + lane - skew;
    if (chunk > 0 && c < slot.real) store(slot, r, c);
  }
}

/// Shared rows to the global ones. bits: of all rows' beginnings, strides and lengths.
template <class Size>
__device__ __forceinline__ void store_rows(const RowSlot* slots, uint32_t bits, const uint4* rows) {
  constexpr int across = Size::cols / 16, down = Size::threads / across;
  const int j = threadIdx.x % across;
  if (bits % 16 == 0) {
#pragma unroll
    for (int k = 0; k < Size::chunks_per_thread; ++k) {
      const RowSlot slot = slots[threadIdx.x / across + k * down];
      const uint4 x = rows[swizzle(threadIdx.x) ^ swizzle(k * Size::threads)];
      if (16 * j < slot.real) __stcs(reinterpret_cast<uint4*>(slot.data) + j, x);
    }
    return;
  }
  const uint32_t row = swizzle(threadIdx.x - j);
#pragma unroll
  for (int k = 0; k < Size::chunks_per_thread; ++k) {
    const RowSlot slot = slots[threadIdx.x / across + k * down];
    const int c = 16 * j - slot.skew(16);
    if (c >= 0 && c + 16 <= slot.real)
      __stcs(reinterpret_cast<uint4*>(slot.data + c), shared_bytes<Size>(rows, row ^ swizzle(k * Size::threads), c));
  }
  if (bits % 2 == 0)
    store_edges<Size, uint16_t>(slots, rows);
  else
    store_edges<Size, uint8_t>(slots, rows);
}

/// Count the pads of the storage that are not as prescribed, and find the first. A thread takes a row.
template <class Size>
__device__ __forceinline__ void check_pads(const Batch& batch, Corner at, const RowSlot* slots, const uint4* rows) {
  const int width = width_here<Size>(batch, at), height = min(int(batch.storage.n) - at.n, Size::rows);
  PadFound* const found = item(batch).found;
  for (int r = threadIdx.x; r < height; r += Size::threads) {
    const RowSlot slot = slots[r];
    for (int c = slot.real & ~3; c < width; c += 4) {
      const uint32_t is = shared_word<Size>(rows, r, c), expected = PadWord(batch, at, c)(slot.pad);
      const uint32_t differs = (is ^ expected) & first_bytes(width - c) & ~first_bytes(slot.real - c);
      for (int j = 0; j < 4 && differs; ++j) {
        if ((differs >> 8 * j & 255) == 0) continue;
        const uint8_t add = batch.matrix.add, stored = uint8_t((is >> 8 * j) + add),
                      want = uint8_t((expected >> 8 * j) + add);
        const unsigned long long place = int64_t(at.n + r) * batch.storage.b + at.b + c + j;
        atomicAdd(&found->wrong, 1ull);
        atomicMax(&found->first, ~(place << 16 | stored << 8 | want));
      }
    }
  }
}

}  // namespace mxfp4
