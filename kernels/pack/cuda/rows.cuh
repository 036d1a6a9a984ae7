// A block's rows between global memory and shared memory: row order, padding and `add` applied on the way in, pads
// checked on the way out. Rows of the checkpoint begin at any byte.
#pragma once

#include <cstdint>

#include "kernels/pack/cuda/batch.h"
#include "kernels/pack/cuda/block.cuh"

namespace mxfp4 {

/// One row of the block: `real` bytes in global memory, then pads. data: null if the row has no real bytes. Slots are
/// in memory order (Interleave), with an empty slot before the first and after the last.
struct alignas(16) RowSlot {
  uint8_t* data;
  uint16_t row;  // the row's place in shared memory: column c is at byte row ^ c
  uint8_t real;
  uint8_t whole;          // chunks of 16 bytes before this column can be stored whole (link_rows)
  uint8_t below, beside;  // pads before `add`: in the columns of the views' rows; from there up to the padded width
  /// Bytes from a multiple of `to` to the row.
  __device__ __forceinline__ int skew(int to) const { return int(reinterpret_cast<uintptr_t>(data)) & (to - 1); }
  /// Bytes from the row to a multiple of 16.
  __device__ __forceinline__ int ahead() const { return -int(reinterpret_cast<uintptr_t>(data)) & 15; }
  /// The chunk of 16 bytes in which the row ends is stored with the next row's first bytes.
  __device__ __forceinline__ bool is_linked() const { return whole > real; }
};

/// A block in shared memory.
template <class Size>
struct Shared {
  static constexpr int rows = Size::parts * Size::rows;
  uint4 chunks[Size::parts * Size::chunks];
  RowSlot slots_and_ends[rows + 2];
  __device__ __forceinline__ RowSlot* slots() { return slots_and_ends + 1; }
};

/// First row and byte of a part of the block in the storage. end: the row that is no longer one of such parts.
struct Corner {
  int n, b, end;
};

template <class Size>
__device__ __forceinline__ Corner corner(const Batch& batch, int part) {
  const int n = int(blockIdx.y) * Size::rows, b = int(blockIdx.x) * Size::cols, end = int(batch.storage.n);
  if constexpr (Size::parts == 1) return {n, b, end};
  const int half = int(batch.interleave.half);
  return part == 0 ? Corner{n, b, half} : Corner{n + half, b, end};
}

__device__ __forceinline__ const Batch::Item& item(const Batch& batch) { return batch.items[blockIdx.z]; }

/// Columns that the storage has in the block.
template <class Size>
__device__ __forceinline__ int width_here(const Batch& batch) {
  return min(int(batch.storage.b) - int(blockIdx.x) * Size::cols, Size::cols);
}

/// Columns that the views' rows have in the block.
template <class Size>
__device__ __forceinline__ int real_here(const Batch& batch) {
  return max(min(int(batch.matrix.real.b) - int(blockIdx.x) * Size::cols, width_here<Size>(batch)), 0);
}

__device__ __forceinline__ uint32_t four(uint8_t byte) { return byte * 0x01010101u; }

/// The place in shared memory of row r of the block, counted through its parts.
template <class Size>
__device__ __forceinline__ uint16_t shared_row(int r) {
  static_assert(swizzle(Size::chunks) == Size::chunks);
  static_assert(Shared<Size>::rows * Size::cols <= 1 << 16 && Size::cols + 15 < 256);  // a slot has room for them
  return uint16_t(swizzle(uint32_t(r) * (Size::cols / 16)) * 16);
}

template <class Size>
__device__ __forceinline__ int place(const Batch& batch, int r) {
  if (!Size::can_pair) return r;
  Interleave interleave = batch.interleave;
  if (Size::parts == 2) interleave.rows = Size::rows;
  return interleave.place(r, batch.matrix.order.up_first);
}

/// The empty slots at the ends.
template <class Size>
__device__ __forceinline__ void end_slots(RowSlot* slots) {
  if (threadIdx.x < 2) slots[threadIdx.x ? Shared<Size>::rows : -1] = {};
}

/// The rows of the views. True if the thread met one of the storage that is a pad as a whole.
template <class Size>
__device__ __forceinline__ bool find_rows(const Batch& batch, RowSlot* slots) {
  static_assert(Shared<Size>::rows <= Size::threads);
  end_slots<Size>(slots);
  const int r = threadIdx.x;
  if (r >= Shared<Size>::rows) return false;
  const MutableMatrix& m = batch.matrix;
  const Corner at = corner<Size>(batch, r / Size::rows);
  const int n = at.n + r % Size::rows;
  RowSlot slot{nullptr, shared_row<Size>(r), 0, 0, m.pad.storage.at(0), m.pad.storage.at(0)};
  bool real = false;
  if (n < min(int(m.padded.n), at.end)) {
    const RowSource source = m.source(uint32_t(n));
    real = source.row < m.real.n;
    slot.below = m.pad.row.at(0);
    slot.beside = (real ? m.pad.column : m.pad.corner).at(0);
    if (real && at.b < int(m.real.b)) {
      slot.data = item(batch).view[source.view] + source.row * m.view[source.view].stride + at.b;
      slot.real = uint8_t(real_here<Size>(batch));
    }
  }
  slots[place<Size>(batch, r)] = slot;
  return n < at.end && !real;
}

/// The rows of a packed matrix whose layout is plain.
template <class Size>
__device__ __forceinline__ void find_packed_rows(const Batch& batch, RowSlot* slots) {
  end_slots<Size>(slots);
  const int r = threadIdx.x;
  if (r >= Shared<Size>::rows) return;
  const Corner at = corner<Size>(batch, r / Size::rows);
  const int64_t n = at.n + r % Size::rows;
  RowSlot slot{nullptr, shared_row<Size>(r), 0, 0, 0, 0};
  if (n < at.end) {
    slot.data = item(batch).packed + n * batch.storage.b + at.b;
    slot.real = uint8_t(width_here<Size>(batch));
  }
  slots[r] = slot;
}

/// A mask of the first n bytes of a word, for any n.
__device__ __forceinline__ uint32_t first_bytes(int n) { return __funnelshift_lc(~0u, 0, max(8 * n, 0)); }

/// The pads of columns c to c+3 of a row, in the block from column b on.
struct PadWord {
  uint32_t below, beside, storage;  // the first two: masks
  __device__ __forceinline__ PadWord(const Batch& batch, int b, int c) {
    const uint32_t padded = first_bytes(int(batch.matrix.padded.b) - b - c);
    below = first_bytes(int(batch.matrix.real.b) - b - c);
    beside = padded & ~below;
    storage = four(batch.matrix.pad.storage.at(0)) & ~padded;
  }
  __device__ __forceinline__ uint32_t operator()(const RowSlot& row) const {
    return (four(row.below) & below) | (four(row.beside) & beside) | storage;
  }
};

/// The padding of sixteen bytes from column c on of a row that has `real` columns: bytes & mask | pads.
struct Padding {
  uint4 mask, pads;
  __device__ __forceinline__ Padding(const Batch& batch, int b, int c, int real, const RowSlot& row) {
    mask = make_uint4(first_bytes(real - c), first_bytes(real - c - 4), first_bytes(real - c - 8),
                      first_bytes(real - c - 12));
    const auto word = [&](int i, uint32_t m) { return PadWord(batch, b, c + 4 * i)(row) & ~m; };
    pads = make_uint4(word(0, mask.x), word(1, mask.y), word(2, mask.z), word(3, mask.w));
  }
  __device__ __forceinline__ uint4 operator()(const uint4& x) const {
    return make_uint4((x.x & mask.x) | pads.x, (x.y & mask.y) | pads.y, (x.z & mask.z) | pads.z,
                      (x.w & mask.w) | pads.w);
  }
};

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

/// Global rows that begin and end at multiples of 16 to shared rows, in blocks of one part.
template <class Size>
__device__ __forceinline__ void load_aligned(const Batch& batch, const RowSlot* slots, uint8_t add, uint4* rows) {
  constexpr int across = Size::cols / 16, down = Size::threads / across, steps = Size::chunks_per_thread;
  const int c = threadIdx.x % across * 16, b = int(blockIdx.x) * Size::cols;
  uint4 x[steps];
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    const RowSlot slot = slots[threadIdx.x / across + k * down];
    x[k] =
        c < int(slot.real) ? __ldg(reinterpret_cast<const uint4*>(slot.data + c)) : Padding(batch, b, c, 0, slot).pads;
  }
#pragma unroll
  for (int k = 0; k < steps; ++k) rows[swizzle(threadIdx.x) ^ swizzle(k * Size::threads)] = plus(x[k], add);
}

__device__ __forceinline__ uint8_t* bytes_of(uint4* chunks) { return reinterpret_cast<uint8_t*>(chunks); }
__device__ __forceinline__ const uint8_t* bytes_of(const uint4* chunks) {
  return reinterpret_cast<const uint8_t*>(chunks);
}

/// Loads global rows of any alignment into shared rows. For each 16 bytes it loads the aligned pairs of words that
/// contain them. slots: of one part. pad_rows: some rows of the block are pads. Bytes beyond the storage's width are
/// undefined.
template <class Size>
__device__ __forceinline__ void load_unaligned(const Batch& batch, const RowSlot* slots, bool pad_rows, uint8_t add,
                                               uint4* block) {
  constexpr int across = Size::cols / 16, down = Size::threads / across, steps = Size::chunks_per_thread;
  const int c = threadIdx.x % across * 16, b = int(blockIdx.x) * Size::cols;
  if (c >= width_here<Size>(batch)) return;
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
  const Padding padding(batch, b, c, slot->real, *slot);
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    const RowSlot& row = slot[k * down];
    const uint4 y = funnel(x[k][0], x[k][1], x[k][2], row.skew(8));
    *reinterpret_cast<uint4*>(bytes_of(block) + (row.row ^ c)) =
        plus(pad_rows ? Padding(batch, b, c, row.real, row)(y) : padding(y), add);
  }
}

/// Global rows to shared rows, `add` added to each byte. bits: of all rows' beginnings, strides and lengths.
template <class Size>
__device__ __forceinline__ void load_rows(const Batch& batch, const RowSlot* slots, uint32_t bits, bool pad_rows,
                                          uint8_t add, uint4* block) {
  if (Size::parts == 1 && bits % 16 == 0) return load_aligned<Size>(batch, slots, add, block);
#pragma unroll
  for (int part = 0; part < Size::parts; ++part)
    load_unaligned<Size>(batch, slots + part * Size::rows, pad_rows, add, block);
}

/// Add to every byte of the shared rows. Between barriers.
template <class Size>
__device__ __forceinline__ void add_to_rows(uint8_t add, uint4* block) {
  for (int q = threadIdx.x; q < Size::parts * Size::chunks; q += Size::threads) block[q] = plus(block[q], add);
}

/// Sixteen bytes from column c on, any c, of a shared row; those outside the row do not matter to the caller.
template <class Size>
__device__ __forceinline__ uint4 shared_bytes(const uint4* block, uint32_t row, int c) {
  const auto at = [&](int column) {
    return *reinterpret_cast<const uint2*>(bytes_of(block) + (row ^ (uint32_t(column) & (Size::cols - 8))));
  };
  return funnel(at(c), at(c + 8), at(c + 16), c & 7);
}

/// Copies the first bytes of the next row in global memory behind a row in shared memory. The chunk of 16 bytes that
/// spans both rows can then be stored whole. Call between barriers; each thread handles one row.
template <class Size>
__device__ __forceinline__ void link_rows(RowSlot* slots, uint4* block) {
  if (threadIdx.x >= Shared<Size>::rows) return;
  RowSlot* const slot = slots + threadIdx.x;
  const int real = slot->real;
  const bool linked = slot->data + real == slot[1].data && slot[1].real >= 16 && real <= Size::cols - 16;
  slot->whole = uint8_t(linked ? real + 15 : real);
  if (!linked) return;
  const uint32_t row = slot->row, c = uint32_t(real) & ~3u, bits = uint32_t(real) % 4 * 8;
  const auto word = [&](uint32_t i) { return reinterpret_cast<uint32_t*>(bytes_of(block) + (row ^ (c + 4 * i))); };
  const uint4 next = *reinterpret_cast<const uint4*>(bytes_of(block) + slot[1].row);
  *word(0) = __funnelshift_l(__funnelshift_r(0, *word(0), bits), next.x, bits);
  *word(1) = __funnelshift_l(next.x, next.y, bits);
  *word(2) = __funnelshift_l(next.y, next.z, bits);
  *word(3) = __funnelshift_l(next.z, next.w, bits);
  if (bits) *word(4) = __funnelshift_l(next.w, 0, bits);
}

/// Shared rows to global ones that begin and end at multiples of 16, in blocks of one part.
template <class Size>
__device__ __forceinline__ void store_aligned(const RowSlot* slots, const uint4* rows) {
  constexpr int across = Size::cols / 16, down = Size::threads / across;
  const int j = threadIdx.x % across;
#pragma unroll
  for (int k = 0; k < Size::chunks_per_thread; ++k) {
    const RowSlot slot = slots[threadIdx.x / across + k * down];
    const uint4 x = rows[swizzle(threadIdx.x) ^ swizzle(k * Size::threads)];
    if (16 * j < slot.real) __stcs(reinterpret_cast<uint4*>(slot.data) + j, x);
  }
}

/// Stores the whole aligned chunks of 16 bytes that begin in rows. Call after link_rows().
template <class Size>
__device__ __forceinline__ void store_chunks(const RowSlot* slots, const uint4* block) {
  constexpr int across = Size::cols / 16, down = Size::threads / across;
#pragma unroll
  for (int k = 0; k < Size::parts * Size::chunks_per_thread; ++k) {
    const RowSlot row = slots[threadIdx.x / across + k * down];
    const int c = int(threadIdx.x) % across * 16 + row.ahead();
    if (c + 16 <= int(row.whole)) __stcs(reinterpret_cast<uint4*>(row.data + c), shared_bytes<Size>(block, row.row, c));
  }
}

/// Stores the bytes of rows in their first and last aligned chunks that store_chunks() does not store. Rows begin and
/// end at multiples of sizeof(T).
template <class Size, class T>
__device__ __forceinline__ void store_edges(const RowSlot* slots, const uint4* block) {
  constexpr int per_warp = Shared<Size>::rows * 32 / Size::threads, lanes = 16 / sizeof(T), at_once = 32 / lanes;
  const int lane = threadIdx.x % 32, c = lane % lanes * int(sizeof(T));
  slots += threadIdx.x / 32 * per_warp;
  const auto head = [](const RowSlot* slot) { return slot[-1].is_linked() ? 0 : min(slot->ahead(), int(slot->real)); };
  const auto tail = [](const RowSlot* slot) {  // its first column
    const int first = slot->ahead() + ((slot->real - slot->ahead()) & ~15);
    return slot->is_linked() || first < 0 ? int(slot->real) : first;
  };
  const bool has_edges = lane < per_warp && (head(slots + lane) > 0 || tail(slots + lane) < int(slots[lane].real));
  uint32_t left = __ballot_sync(~0u, has_edges);
#pragma unroll 1
  for (const RowSlot* slot = slots + lane / lanes; left; slot += at_once, left >>= at_once) {
    if (left % (1u << at_once) == 0) continue;
    const auto store = [&](int column) {
      const T x = *reinterpret_cast<const T*>(bytes_of(block) + (slot->row ^ column));
      __stcs(reinterpret_cast<T*>(slot->data + column), x);
    };
    if (c < head(slot)) store(c);
    if (tail(slot) + c < int(slot->real)) store(tail(slot) + c);
  }
}

/// Shared rows to the global ones. bits: of all rows' beginnings, strides and lengths. Changes the columns that rows do
/// not have.
template <class Size>
__device__ __forceinline__ void store_rows(RowSlot* slots, uint32_t bits, uint4* block) {
  if (Size::parts == 1 && bits % 16 == 0) return store_aligned<Size>(slots, block);
  link_rows<Size>(slots, block);
  __syncthreads();
  store_chunks<Size>(slots, block);
  if (bits % 2 == 0)
    store_edges<Size, uint16_t>(slots, block);
  else
    store_edges<Size, uint8_t>(slots, block);
}

/// Counts the storage's pads that have a wrong value, and finds the first. Each thread handles one row, as in
/// link_rows(), so no barrier is needed between the two.
template <class Size>
__device__ __forceinline__ void check_pads(const Batch& batch, const RowSlot* slots, const uint4* block) {
  if (threadIdx.x >= Shared<Size>::rows) return;
  const RowSlot slot = slots[threadIdx.x];
  const int r = slot.row / Size::cols, width = width_here<Size>(batch);
  const Corner at = corner<Size>(batch, r / Size::rows);
  const int n = at.n + r % Size::rows;
  if (n >= at.end) return;
  PadFound* const found = item(batch).found;
  for (int c = slot.real & ~3; c < width; c += 4) {
    const uint32_t is = *reinterpret_cast<const uint32_t*>(bytes_of(block) + (slot.row ^ c));
    const uint32_t expected = PadWord(batch, at.b, c)(slot);
    const uint32_t differs = (is ^ expected) & first_bytes(width - c) & ~first_bytes(slot.real - c);
    for (int j = 0; j < 4 && differs; ++j) {
      if ((differs >> 8 * j & 255) == 0) continue;
      const uint8_t add = batch.matrix.add, stored = uint8_t((is >> 8 * j) + add),
                    want = uint8_t((expected >> 8 * j) + add);
      const unsigned long long place = int64_t(n) * batch.storage.b + at.b + c + j;
      atomicAdd(&found->wrong, 1ull);
      atomicMax(&found->first, ~(place << 16 | stored << 8 | want));
    }
  }
}

}  // namespace mxfp4
