// A block's slots from global memory to shared memory: row order, padding and `add`. Rows of the checkpoint begin at
// any byte.
#pragma once

#include <cstdint>

#include "kernels/pack/cuda/batch.h"
#include "kernels/pack/cuda/block_plan.h"

namespace mxfp4 {

/// A slot of the block: `real` bytes in global memory, then pads. data: null if none is real. Slots are in memory's
/// order, with an empty one before the first and after the last.
struct alignas(16) RowSlot {
  enum Kind : uint32_t { real_row, pad_row, storage_row };
  uint8_t* data;
  uint16_t place;  // in shared memory
  uint8_t real;
  uint8_t links = 0;  // link_rows(): is_linked(), and head() * 2
  uint32_t column_and_kind;
  __device__ __forceinline__ int column() const { return int(column_and_kind >> 2); }
  __device__ __forceinline__ uint32_t kind() const { return column_and_kind & 3; }
  /// Bytes from a multiple of `to` to the slot.
  __device__ __forceinline__ int skew(int to) const { return int(reinterpret_cast<uintptr_t>(data)) & (to - 1); }
  /// Bytes from the slot to a multiple of 16.
  __device__ __forceinline__ int ahead() const { return -int(reinterpret_cast<uintptr_t>(data)) & 15; }
  /// The chunk of 16 bytes in which the slot ends is stored with the next slot's first bytes.
  __device__ __forceinline__ bool is_linked() const { return links & 1; }
  /// The slot's first bytes, in a chunk that is not stored whole: from 0 to here, and from tail() to `real`.
  __device__ __forceinline__ int head() const { return links >> 1; }
  __device__ __forceinline__ int tail() const {
    const int first = ahead() + ((real - ahead()) & ~15);
    return is_linked() || first < 0 ? int(real) : first;
  }
};

/// A block: shared memory, and what the kernel was given.
struct Block {
  const Batch& batch;
  const BlockPlan& plan;
  PlanBlock begin;
  uint8_t* bytes;
  RowSlot* slots;
  __device__ __forceinline__ const Batch::Item& item() const { return batch.items[blockIdx.z]; }
  __device__ __forceinline__ int chunks() const { return int(plan.slot_count * plan.across); }
  __device__ __forceinline__ static int threads() { return int(blockDim.x); }
};

/// Finds the block's slots in global memory. Returns whether the thread's slot has pads.
__device__ __forceinline__ bool find_rows(const Block& block) {
  const int s = threadIdx.x, count = int(block.plan.slot_count);
  if (s == 0) block.slots[-1] = block.slots[count] = {};
  if (s >= count) return false;
  const MutableMatrix& m = block.batch.matrix;
  const PlanSlot at = block.plan.slots[block.begin.slot + s];
  const uint32_t n = block.begin.row + at.row;
  const int column = int(block.begin.byte + at.byte);
  RowSlot slot{nullptr, uint16_t(at.place), 0, 0, 0};
  uint32_t kind = RowSlot::storage_row;
  if (n < uint32_t(m.padded.n)) {
    const RowSource source = m.source(n);
    kind = source.row < m.real.n ? RowSlot::real_row : RowSlot::pad_row;
    if (kind == RowSlot::real_row && column < int(m.real.b)) {
      slot.data = block.item().view[source.view] + source.row * m.view[source.view].stride + column;
      slot.real = uint8_t(min(int(m.real.b) - column, int(block.plan.cols)));
    }
  }
  slot.column_and_kind = uint32_t(column) << 2 | kind;
  block.slots[s] = slot;
  return slot.real < block.plan.cols;
}

/// A mask of the first n bytes of a word, for any n.
__device__ __forceinline__ uint32_t first_bytes(int n) { return __funnelshift_lc(~0u, 0, max(8 * n, 0)); }

/// The pads at bytes c to c+3 of a slot.
__device__ __forceinline__ uint32_t pad_word(const MutableMatrix& m, const RowSlot& slot, int c) {
  const int column = slot.column() + c;
  const auto at = [&](PadByte pad) { return __funnelshift_r(pad.four, pad.four, 8 * (column & 3)); };
  if (slot.kind() == RowSlot::storage_row) return at(m.pad.storage);
  const uint32_t padded = first_bytes(int(m.padded.b) - column), below = first_bytes(int(m.real.b) - column);
  const PadByte beside = slot.kind() == RowSlot::real_row ? m.pad.column : m.pad.corner;
  return (at(m.pad.row) & below) | (at(beside) & padded & ~below) | (at(m.pad.storage) & ~padded);
}

/// Whether all pads of the matrix are the same byte: those of each kind, four of them, are m.pad.row.four.
__device__ __forceinline__ bool are_alike(const PadBytes& pad) {
  const uint32_t all = pad.row.four;
  return all == pad.column.four && all == pad.storage.four && all == pad.corner.four &&
         all == __funnelshift_r(all, all, 8);
}

/// Whether bytes c to c+15 of a slot, none of which is real, are pads of one kind; then `word` is each four of them.
__device__ __forceinline__ bool is_one_pad(const MutableMatrix& m, const RowSlot& slot, int c, uint32_t& word) {
  const int column = slot.column() + c;
  PadByte pad = m.pad.storage;
  if (slot.kind() != RowSlot::storage_row && column < int(m.padded.b)) {
    const bool below = slot.kind() == RowSlot::pad_row && column < int(m.real.b);
    if (column + 16 > int(below ? m.real.b : m.padded.b)) return false;
    pad = below ? m.pad.row : slot.kind() == RowSlot::real_row ? m.pad.column : m.pad.corner;
  }
  word = __funnelshift_r(pad.four, pad.four, 8 * (column & 3));
  return true;
}

/// Sixteen bytes from byte c on of a slot, none of which is real.
__device__ __forceinline__ uint4 pads(const MutableMatrix& m, const RowSlot& slot, int c) {
  uint32_t pad;
  if (is_one_pad(m, slot, c, pad)) return make_uint4(pad, pad, pad, pad);
  return make_uint4(pad_word(m, slot, c), pad_word(m, slot, c + 4), pad_word(m, slot, c + 8),
                    pad_word(m, slot, c + 12));
}

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
  const uint32_t adds = add * 0x01010101u;
  return make_uint4(__vadd4(x.x, adds), __vadd4(x.y, adds), __vadd4(x.z, adds), __vadd4(x.w, adds));
}

/// The bitwise OR of where slots begin in both memories, and of their lengths. Its lowest set bit is the common
/// alignment.
__device__ __forceinline__ uint32_t row_bits(const Block& block) {
  const MutableMatrix& m = block.batch.matrix;
  uint8_t* const* const view = block.item().view;
  uint32_t bits = uint32_t(reinterpret_cast<uintptr_t>(view[0]) | m.view[0].stride | m.real.b) | block.plan.column_bits;
  if (m.views == 2) bits |= uint32_t(reinterpret_cast<uintptr_t>(view[1]) | m.view[1].stride);
  return bits;
}

/// A chunk of 16 bytes on its way to shared memory.
template <bool aligned>
struct LoadedChunk;
template <>
struct LoadedChunk<true> {
  static constexpr int alignment = 16;
  uint4 x;
  __device__ __forceinline__ void set(uint32_t word) { x = make_uint4(word, word, word, word); }
  __device__ __forceinline__ void load(const RowSlot& slot, int c) {
    x = __ldg(reinterpret_cast<const uint4*>(slot.data + c));
  }
  __device__ __forceinline__ uint4 get(int) const { return x; }
};
/// The aligned pairs of words that contain it.
template <>
struct LoadedChunk<false> {
  static constexpr int alignment = 8;
  uint2 x[3];
  __device__ __forceinline__ void set(uint32_t word) { x[0] = x[1] = x[2] = make_uint2(word, word); }
  __device__ __forceinline__ void load(const RowSlot& slot, int c) {
    const int skew = slot.skew(alignment), left = slot.real + skew - c;
    const uint2* const from = reinterpret_cast<const uint2*>(slot.data - skew + c);
#pragma unroll
    for (int i = 0; i < 3; ++i)
      if (8 * i < left) x[i] = __ldg(from + i);
  }
  __device__ __forceinline__ uint4 get(int skew) const { return funnel(x[0], x[1], x[2], skew); }
};

/// Slots to shared memory; chunks of 16 bytes without a real one are row pads. at_once: of a thread.
template <bool aligned, int at_once>
__device__ __forceinline__ void load_rows(const Block& block) {
  constexpr int skews = LoadedChunk<aligned>::alignment;
  const int chunks = block.chunks(), across = int(block.plan.across);
  for (int first = threadIdx.x; first < chunks; first += at_once * Block::threads()) {
    LoadedChunk<aligned> loaded[at_once];
    int to[at_once];  // place * skews + skew
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const int i = min(first + k * Block::threads(), chunks - 1), s = int(block.plan.slot_of(uint32_t(i)));
      const RowSlot slot = block.slots[s];
      const int c = (i - s * across) * 16;
      to[k] = (slot.place + c) * skews + slot.skew(skews);
      loaded[k].set(block.batch.matrix.pad.row.four);
      if (c < int(slot.real)) loaded[k].load(slot, c);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k)
      *reinterpret_cast<uint4*>(block.bytes + to[k] / skews) = loaded[k].get(to[k] % skews);
  }
}

/// Sets the bytes of slots that are not real, in chunks of 16 bytes that load_rows() did not set right. Between
/// barriers.
__device__ __forceinline__ void pad_rows(const Block& block) {
  if (threadIdx.x >= block.plan.slot_count) return;
  const MutableMatrix& m = block.batch.matrix;
  const RowSlot slot = block.slots[threadIdx.x];
  const int end = are_alike(m.pad) ? int(slot.real) : int(block.plan.cols);
#pragma unroll 1
  for (int c = slot.real & ~15; c < end && slot.real < block.plan.cols; c += 16) {
    uint4* const to = reinterpret_cast<uint4*>(block.bytes + slot.place + c);
    const uint4 pad = pads(m, slot, c), is = *to;
    const auto word = [&](uint32_t x, uint32_t y, int at) {
      const uint32_t real = first_bytes(int(slot.real) - c - at);
      return (x & real) | (y & ~real);
    };
    *to = make_uint4(word(is.x, pad.x, 0), word(is.y, pad.y, 4), word(is.z, pad.z, 8), word(is.w, pad.w, 12));
  }
}

/// Add to every byte of the block. Between barriers.
__device__ __forceinline__ void add_to_rows(const Block& block, uint8_t add) {
  uint4* const all = reinterpret_cast<uint4*>(block.bytes);
  for (uint32_t i = threadIdx.x; i < block.plan.shared_bytes / 16; i += Block::threads()) all[i] = plus(all[i], add);
}

}  // namespace mxfp4
