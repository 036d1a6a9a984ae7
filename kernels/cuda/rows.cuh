// A block's rows between global memory and shared memory: row order, padding and `add` applied on the way in, pads
// checked on the way out. Rows of the checkpoint begin at any byte.
#pragma once

#include <cstdint>

#include "kernels/cuda/batch.h"
#include "kernels/cuda/block.cuh"

namespace mxfp4 {

/// One row of the block in global memory: `real` bytes at aligned + skew, then pads.
struct alignas(16) RowSlot {
  uint8_t* aligned;  // to 8
  uint32_t bits;     // skew in bits; real in bits from bit 16 on
  uint32_t pad;      // up to the padded width: the byte four times, before `add`
  __device__ __forceinline__ int skew() const { return int(bits >> 3 & 7); }
  __device__ __forceinline__ int real() const { return int(bits >> 19); }
  __device__ __forceinline__ int real_bits() const { return int(bits >> 16); }
  __device__ __forceinline__ int end() const { return real() + skew(); }
};

__device__ __forceinline__ RowSlot row_slot(uint8_t* data, int real, uint32_t pad) {
  const uint32_t skew = real > 0 ? reinterpret_cast<uintptr_t>(data) & 7 : 0;
  return {data - skew, 8 * skew | uint32_t(real) << 19, pad};
}

/// First row and byte of the block in the storage.
struct Corner {
  int64_t n, b;
};

template <class Size>
__device__ __forceinline__ Corner corner(const Batch& batch) {
  const uint32_t across = uint32_t((batch.storage.b + Size::cols - 1) / Size::cols);
  return {int64_t(blockIdx.x / across) * Size::rows, int64_t(blockIdx.x % across) * Size::cols};
}

/// Columns that the storage has in the block.
template <class Size>
__device__ __forceinline__ int width_here(const Batch& batch, Corner at) {
  return int(min(batch.storage.b - at.b, int64_t(Size::cols)));
}

__device__ __forceinline__ uint32_t four(uint8_t byte) { return byte * 0x01010101u; }

/// The rows of the views. True if the thread met one that does not fill the storage.
template <class Size>
__device__ __forceinline__ bool find_rows(const Batch& batch, Corner at, RowSlot* slots) {
  static_assert(Size::rows <= Size::threads);
  if (threadIdx.x >= Size::rows) return false;
  const MutableMatrix& m = batch.matrix;
  const int64_t n = at.n + threadIdx.x;
  const int width = width_here<Size>(batch, at);
  RowSlot slot = row_slot(nullptr, 0, four(m.pad.storage));
  if (n < m.padded.n) {
    const RowSource source = m.source(uint32_t(n));
    const bool real = source.row < m.real.n;
    slot.pad = four(real ? m.pad.column : m.pad.row);
    if (real && at.b < m.real.b)
      slot = row_slot(batch.items[blockIdx.y].view[source.view] + source.row * m.view[source.view].stride + at.b,
                      int(min(m.real.b - at.b, int64_t(width))), slot.pad);
  }
  slots[threadIdx.x] = slot;
  return n < batch.storage.n && slot.real() < width;
}

/// The rows of a packed matrix whose layout is plain.
template <class Size>
__device__ __forceinline__ void find_packed_rows(const Batch& batch, Corner at, RowSlot* slots) {
  if (threadIdx.x >= Size::rows) return;
  const int64_t n = at.n + threadIdx.x;
  slots[threadIdx.x] = row_slot(batch.items[blockIdx.y].packed + n * batch.storage.b + at.b,
                                n < batch.storage.n ? width_here<Size>(batch, at) : 0, 0);
}

/// A mask of the first n bits or bytes of a word, for any n.
__device__ __forceinline__ uint32_t first_bits(int n) { return __funnelshift_lc(~0u, 0, max(n, 0)); }
__device__ __forceinline__ uint32_t first_bytes(int n) { return first_bits(8 * n); }

/// What columns c to c+3 of a row's pads hold: `row` up to the padded width, then `storage`.
struct PadWord {
  uint32_t mask, storage;
  __device__ __forceinline__ PadWord(const Batch& batch, Corner at, int c) {
    mask = first_bytes(int(max(min(batch.matrix.padded.b - at.b - c, int64_t(4)), int64_t(0))));
    storage = four(batch.matrix.pad.storage) & ~mask;
  }
  __device__ __forceinline__ uint32_t operator()(uint32_t row) const { return (row & mask) | storage; }
};

/// Words, or pairs of words, of the shared rows, counted through all of them.
__device__ __forceinline__ uint32_t swizzled_word(uint32_t w) { return swizzle(w >> 2) << 2 | (w & 3); }
__device__ __forceinline__ uint32_t swizzled_pair(uint32_t p) { return swizzle(p >> 1) << 1 | (p & 1); }

/// Eight of the sixteen bytes of `low` and `high`, from bit shift % 64 on.
__device__ __forceinline__ uint2 funnel(uint2 low, uint2 high, uint32_t shift) {
  const bool word = shift & 32;
  const uint32_t a = word ? low.y : low.x, b = word ? high.x : low.y, c = word ? high.y : high.x;
  return make_uint2(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift));
}

/// Global rows that begin and end at multiples of 16 to shared rows.
template <class Size>
__device__ __forceinline__ void load_aligned(const Batch& batch, Corner at, const RowSlot* slots, uint4* rows) {
  constexpr int across = Size::cols / 16, down = Size::threads / across, steps = Size::chunks_per_thread;
  const int c = threadIdx.x % across * 16;
  uint4 x[steps];
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    const RowSlot slot = slots[threadIdx.x / across + k * down];
    if (c < slot.real()) {
      x[k] = __ldg(reinterpret_cast<const uint4*>(slot.aligned + c));
    } else {
      const auto pad = [&](int i) { return PadWord(batch, at, c + 4 * i)(slot.pad); };
      x[k] = make_uint4(pad(0), pad(1), pad(2), pad(3));
    }
  }
#pragma unroll
  for (int k = 0; k < steps; ++k) rows[swizzle(threadIdx.x) ^ swizzle(k * Size::threads)] = x[k];
}

/// Global rows that begin and end anywhere to shared rows. Each lane reads an aligned pair of words once, and takes
/// what its eight bytes need of the next from the lane beside it.
template <class Size>
__device__ __forceinline__ void load_unaligned(const Batch& batch, Corner at, const RowSlot* slots, uint4* rows) {
  constexpr int across = Size::cols / 8, down = Size::threads / across, together = 8;
  const int c = threadIdx.x % across * 8;
  const PadWord pad0(batch, at, c), pad1(batch, at, c + 4);
  for (int first = 0; first < Size::rows / down; first += together) {
    const RowSlot* const slot = slots + threadIdx.x / across + first * down;
    const uint32_t to = swizzled_pair(threadIdx.x) ^ swizzled_pair(first * Size::threads);
    uint2 low[together];
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const RowSlot& row = slot[k * down];
      low[k] = c < row.end() ? __ldg(reinterpret_cast<const uint2*>(row.aligned + c)) : make_uint2(0, 0);
    }
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const RowSlot& row = slot[k * down];
      uint2 high = make_uint2(__shfl_down_sync(~0u, low[k].x, 1, across), __shfl_down_sync(~0u, low[k].y, 1, across));
      if (c + 8 == Size::cols && row.end() > Size::cols)
        high = __ldg(reinterpret_cast<const uint2*>(row.aligned + Size::cols));
      const uint2 x = funnel(low[k], high, row.bits);
      const uint32_t mask0 = first_bits(row.real_bits() - 8 * c), mask1 = first_bits(row.real_bits() - 8 * c - 32);
      reinterpret_cast<uint2*>(rows)[to ^ swizzled_pair(k * Size::threads)] =
          make_uint2((x.x & mask0) | (pad0(row.pad) & ~mask0), (x.y & mask1) | (pad1(row.pad) & ~mask1));
    }
  }
}

/// Global rows to shared rows. aligned: every real row begins and ends at a multiple of 16.
template <class Size>
__device__ __forceinline__ void load_rows(const Batch& batch, Corner at, const RowSlot* slots, bool aligned,
                                          uint4* rows) {
  if (aligned)
    load_aligned<Size>(batch, at, slots, rows);
  else
    load_unaligned<Size>(batch, at, slots, rows);
}

/// Add to every byte of the shared rows. Between barriers.
template <class Size>
__device__ __forceinline__ void add_to_rows(uint8_t add, uint4* rows) {
  const uint32_t adds = four(add);
  for (int q = threadIdx.x; q < Size::chunks; q += Size::threads) {
    const uint4 x = rows[q];
    rows[q] = make_uint4(__vadd4(x.x, adds), __vadd4(x.y, adds), __vadd4(x.z, adds), __vadd4(x.w, adds));
  }
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

/// Pair k of a row's aligned pairs of words in global memory; those of the shared row begin at `row`.
template <class Size>
__device__ __forceinline__ uint2 shared_pair(const uint4* rows, uint32_t row, int skew, int k) {
  const uint2* const pairs = reinterpret_cast<const uint2*>(rows);
  const int low = max(k - (skew > 0), 0), high = min(k, Size::cols / 8 - 1);
  return funnel(pairs[row ^ low], pairs[row ^ high], 8 * (8 - skew));
}

/// The same pair where the row has only a part of it.
template <class Size>
__device__ __forceinline__ void store_edge(const uint4* rows, int r, const RowSlot& slot, int k) {
  const int c = 8 * k - slot.skew(), last = min(slot.real() - c, 8);
  int first = max(-c, 0);
  if (last - first == 8) return;
  const uint2 pair = shared_pair<Size>(rows, swizzled_pair(r * (Size::cols / 8)), slot.skew(), k);
  const uint64_t x = uint64_t(pair.y) << 32 | pair.x;
  uint8_t* const p = slot.aligned + 8 * k;
  while (first < last) {
    if (first % 2 || last - first < 2)
      __stcs(p + first, uint8_t(x >> 8 * first)), first += 1;
    else if (first % 4 || last - first < 4)
      __stcs(reinterpret_cast<uint16_t*>(p + first), uint16_t(x >> 8 * first)), first += 2;
    else
      __stcs(reinterpret_cast<uint32_t*>(p + first), uint32_t(x >> 8 * first)), first += 4;
  }
}

/// Shared rows to the global ones.
template <class Size>
__device__ __forceinline__ void store_rows(const RowSlot* slots, bool aligned, const uint4* rows) {
  if (aligned) {
    constexpr int across = Size::cols / 16, down = Size::threads / across;
    const int c = threadIdx.x % across * 16;
#pragma unroll
    for (int k = 0; k < Size::chunks_per_thread; ++k) {
      const RowSlot slot = slots[threadIdx.x / across + k * down];
      const uint4 x = rows[swizzle(threadIdx.x) ^ swizzle(k * Size::threads)];
      if (c < slot.real()) __stcs(reinterpret_cast<uint4*>(slot.aligned + c), x);
    }
  } else {
    constexpr int across = Size::cols / 8, down = Size::threads / across;
    const int pair = threadIdx.x % across;
    const uint32_t row = swizzled_pair(threadIdx.x / across * across);
#pragma unroll 4
    for (int k = 0; k < Size::rows / down; ++k) {
      const RowSlot& slot = slots[threadIdx.x / across + k * down];
      const int skew = slot.skew(), c = 8 * pair - skew;
      if (c >= 0 && c + 8 <= slot.real())
        __stcs(reinterpret_cast<uint2*>(slot.aligned) + pair,
               shared_pair<Size>(rows, row ^ swizzled_pair(k * Size::threads), skew, pair));
    }
    for (int edge = threadIdx.x; edge < 2 * Size::rows; edge += Size::threads) {
      const RowSlot slot = slots[edge / 2];
      const int end = (slot.skew() + slot.real()) / 8;
      if (edge % 2 == 0)
        store_edge<Size>(rows, edge / 2, slot, 0);
      else if (end > 0)
        store_edge<Size>(rows, edge / 2, slot, end);
    }
  }
}

/// Count the pads of the storage that are not as prescribed, and find the first. A thread takes a row.
template <class Size>
__device__ __forceinline__ void check_pads(const Batch& batch, Corner at, const RowSlot* slots, const uint4* rows) {
  const Shape s = batch.storage;
  const int width = int(min(s.b - at.b, int64_t(Size::cols))), height = int(min(s.n - at.n, int64_t(Size::rows)));
  PadFound* const found = batch.items[blockIdx.y].found;
  for (int r = threadIdx.x; r < height; r += Size::threads) {
    const RowSlot slot = slots[r];
    for (int c = slot.real() & ~3; c < width; c += 4) {
      const uint32_t is = shared_word<Size>(rows, r, c), expected = PadWord(batch, at, c)(slot.pad);
      const uint32_t differs = (is ^ expected) & first_bytes(width - c) & ~first_bytes(slot.real() - c);
      for (int j = 0; j < 4 && differs; ++j) {
        if ((differs >> 8 * j & 255) == 0) continue;
        const uint8_t add = batch.matrix.add, stored = uint8_t((is >> 8 * j) + add),
                      want = uint8_t((expected >> 8 * j) + add);
        const unsigned long long place = (at.n + r) * s.b + at.b + c + j;
        atomicAdd(&found->wrong, 1ull);
        atomicMax(&found->first, ~(place << 16 | stored << 8 | want));
      }
    }
  }
}

}  // namespace mxfp4
