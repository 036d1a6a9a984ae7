// A block's slots between global memory and shared memory: row order, padding and `add` applied on the way in, pads
// checked on the way out. Rows of the checkpoint begin at any byte.
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
  uint8_t whole;  // chunks of 16 bytes before this byte can be stored whole (link_rows)
  uint32_t column_and_kind;
  __device__ __forceinline__ int column() const { return int(column_and_kind >> 2); }
  __device__ __forceinline__ uint32_t kind() const { return column_and_kind & 3; }
  /// Bytes from a multiple of `to` to the slot.
  __device__ __forceinline__ int skew(int to) const { return int(reinterpret_cast<uintptr_t>(data)) & (to - 1); }
  /// Bytes from the slot to a multiple of 16.
  __device__ __forceinline__ int ahead() const { return -int(reinterpret_cast<uintptr_t>(data)) & 15; }
  /// The chunk of 16 bytes in which the slot ends is stored with the next slot's first bytes.
  __device__ __forceinline__ bool is_linked() const { return whole > real; }
};

/// A block: shared memory, and what the kernel was given.
struct Block {
  static constexpr int at_once = 4;
  const Batch& batch;
  const BlockPlan& plan;
  PlanBlock begin;
  uint8_t* bytes;
  RowSlot* slots;
  __device__ __forceinline__ const Batch::Item& item() const { return batch.items[blockIdx.z]; }
  __device__ __forceinline__ int chunks() const { return int(plan.slot_count * plan.across); }
  __device__ __forceinline__ static int threads() { return int(blockDim.x); }
};

/// Finds the block's slots in global memory.
__device__ __forceinline__ void find_rows(const Block& block) {
  const int s = threadIdx.x, count = int(block.plan.slot_count);
  if (s == 0) block.slots[-1] = block.slots[count] = {};
  if (s >= count) return;
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

/// Sixteen bytes from byte c on of a slot, with pads instead of those that are not real.
__device__ __forceinline__ uint4 padded(const MutableMatrix& m, const RowSlot& slot, int c, const uint4& x) {
  if (c + 16 <= int(slot.real)) return x;
  uint32_t pad;
  if (c >= int(slot.real) && is_one_pad(m, slot, c, pad)) return make_uint4(pad, pad, pad, pad);
  const auto word = [&](uint32_t y, int i) {
    const uint32_t real = first_bytes(int(slot.real) - c - i);
    return (y & real) | (pad_word(m, slot, c + i) & ~real);
  };
  return make_uint4(word(x.x, 0), word(x.y, 4), word(x.z, 8), word(x.w, 12));
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

/// Loads a slot's sixteen bytes from byte c on, and bytes that do not matter.
template <bool aligned>
struct LoadedChunk;
template <>
struct LoadedChunk<true> {
  uint4 x = {};
  __device__ __forceinline__ void load(const RowSlot& slot, int c) {
    if (c < int(slot.real)) x = __ldg(reinterpret_cast<const uint4*>(slot.data + c));
  }
  __device__ __forceinline__ uint4 get(const RowSlot&) const { return x; }
};
/// The aligned pairs of words that contain them.
template <>
struct LoadedChunk<false> {
  uint2 x[3] = {};
  __device__ __forceinline__ void load(const RowSlot& slot, int c) {
    const int skew = slot.skew(8), left = slot.real + skew - c;
    const uint2* const from = reinterpret_cast<const uint2*>(slot.data - skew + c);
#pragma unroll
    for (int i = 0; i < 3; ++i)
      if (8 * i < left) x[i] = __ldg(from + i);
  }
  __device__ __forceinline__ uint4 get(const RowSlot& slot) const { return funnel(x[0], x[1], x[2], slot.skew(8)); }
};

/// Global slots to shared memory, `add` added to each byte, pads too.
template <bool aligned>
__device__ __forceinline__ void load_rows(const Block& block) {
  const int chunks = block.chunks(), across = int(block.plan.across);
  for (int first = threadIdx.x; first < chunks; first += Block::at_once * Block::threads()) {
    LoadedChunk<aligned> loaded[Block::at_once];
    int slot[Block::at_once];
#pragma unroll
    for (int k = 0; k < Block::at_once; ++k) {
      const int i = first + k * Block::threads();
      slot[k] = int(block.plan.slot_of(uint32_t(i)));
      if (i < chunks) loaded[k].load(block.slots[slot[k]], (i - slot[k] * across) * 16);
    }
#pragma unroll
    for (int k = 0; k < Block::at_once; ++k) {
      const int i = first + k * Block::threads(), c = (i - slot[k] * across) * 16;
      if (i >= chunks) break;
      const RowSlot& row = block.slots[slot[k]];
      *reinterpret_cast<uint4*>(block.bytes + row.place + c) =
          plus(padded(block.batch.matrix, row, c, loaded[k].get(row)), block.batch.matrix.add);
    }
  }
}

/// Add to every byte of the block. Between barriers.
__device__ __forceinline__ void add_to_rows(const Block& block, uint8_t add) {
  uint4* const all = reinterpret_cast<uint4*>(block.bytes);
  for (uint32_t i = threadIdx.x; i < block.plan.shared_bytes / 16; i += Block::threads()) all[i] = plus(all[i], add);
}

/// Sixteen bytes of shared memory from any byte on; those outside the slot do not matter to the caller.
__device__ __forceinline__ uint4 shared_bytes(const Block& block, int at) {
  const uint2* const from = reinterpret_cast<const uint2*>(block.bytes + (at & ~7));
  return funnel(from[0], from[1], from[2], at & 7);
}

/// Copies the first bytes of the next slot in global memory behind a slot in shared memory. The chunk of 16 bytes that
/// spans both can then be stored whole. Call between barriers; each thread handles one slot.
__device__ __forceinline__ void link_rows(const Block& block) {
  if (threadIdx.x >= block.plan.slot_count) return;
  RowSlot* const slot = block.slots + threadIdx.x;
  const int real = slot->real, room = int(block.plan.cols + block.plan.link_room) - real;
  const bool linked = slot->data + real == slot[1].data && real > slot->ahead() && slot[1].real >= 16 && room >= 20;
  slot->whole = uint8_t(linked ? real + 15 : real);
  if (!linked) return;
  const uint32_t c = uint32_t(real) & ~3u, bits = uint32_t(real) % 4 * 8;
  uint32_t* const word = reinterpret_cast<uint32_t*>(block.bytes + slot->place + c);
  const uint4 next = *reinterpret_cast<const uint4*>(block.bytes + slot[1].place);
  word[0] = __funnelshift_l(__funnelshift_r(0, word[0], bits), next.x, bits);
  word[1] = __funnelshift_l(next.x, next.y, bits);
  word[2] = __funnelshift_l(next.y, next.z, bits);
  word[3] = __funnelshift_l(next.z, next.w, bits);
  if (bits) word[4] = __funnelshift_l(next.w, 0, bits);
}

/// Adds to what was found of an item: (position << 16 | is << 8 | expected).
__device__ __forceinline__ void report(PadFound* found, unsigned long long what) {
  atomicAdd(&found->wrong, 1ull);
  atomicMax(&found->first, ~what);
}

/// Counts the pads of a slot from byte `first` to `end` that have a wrong value, and finds the first.
__device__ __forceinline__ void check_pads(const Block& block, int s, int first, int end) {
  const RowSlot slot = block.slots[s];
  const int width = int(block.plan.cols);
  uint32_t pad;
  if (first % 16 == 0 && end - first == 16 && end <= width && first >= int(slot.real) &&
      is_one_pad(block.batch.matrix, slot, first, pad)) {
    const uint4 is = *reinterpret_cast<const uint4*>(block.bytes + slot.place + first);
    if (is.x == pad && is.y == pad && is.z == pad && is.w == pad) return;
  }
  for (int c = max(first, slot.real & ~3); c < min(end, width); c += 4) {
    const uint32_t is = *reinterpret_cast<const uint32_t*>(block.bytes + slot.place + c);
    const uint32_t expected = pad_word(block.batch.matrix, slot, c);
    const uint32_t differs = (is ^ expected) & first_bytes(width - c) & ~first_bytes(slot.real - c);
    for (int j = 0; j < 4 && differs; ++j) {
      if ((differs >> 8 * j & 255) == 0) continue;
      const uint8_t add = block.batch.matrix.add, stored = uint8_t((is >> 8 * j) + add),
                    want = uint8_t((expected >> 8 * j) + add);
      const int64_t row = block.begin.row + block.plan.slots[block.begin.slot + s].row;
      const unsigned long long place = row * block.batch.storage.b + slot.column() + c + j;
      report(block.item().found, place << 16 | stored << 8 | want);
    }
  }
}

/// use(s, c, slot): for each chunk of 16 bytes of the slots; c is the chunk's first byte in slot s.
template <class Use>
__device__ __forceinline__ void each_chunk(const Block& block, Use use) {
  const int chunks = block.chunks(), across = int(block.plan.across);
#pragma unroll 4
  for (int i = threadIdx.x; i < chunks; i += Block::threads()) {
    const int s = int(block.plan.slot_of(uint32_t(i)));
    use(s, (i - s * across) * 16, block.slots[s]);
  }
}

/// Shared slots to global ones that begin and end at multiples of 16. Checks pads.
__device__ __forceinline__ void store_aligned(const Block& block) {
  each_chunk(block, [&](int s, int c, const RowSlot& slot) {
    if (c < int(slot.real))
      __stcs(reinterpret_cast<uint4*>(slot.data + c), *reinterpret_cast<const uint4*>(block.bytes + slot.place + c));
    else
      check_pads(block, s, c, c + 16);
  });
}

/// Stores the whole aligned chunks of 16 bytes that begin in slots. Checks slots that are pads as a whole. Call after
/// link_rows().
__device__ __forceinline__ void store_chunks(const Block& block) {
  each_chunk(block, [&](int s, int first, const RowSlot& slot) {
    const int c = first + slot.ahead();
    if (c + 16 <= int(slot.whole))
      __stcs(reinterpret_cast<uint4*>(slot.data + c), shared_bytes(block, slot.place + c));
    else if (slot.real == 0)
      check_pads(block, s, first, first + 16);
  });
}

/// Stores the bytes of slots in their first and last aligned chunks that store_chunks() does not store. Slots begin and
/// end at multiples of sizeof(T).
template <class T>
__device__ __forceinline__ void store_edges(const Block& block) {
  constexpr int lanes = 16 / sizeof(T), at_once = 32 / lanes;
  const int lane = threadIdx.x % 32, c = lane % lanes * int(sizeof(T)), count = int(block.plan.slot_count);
  const auto head = [](const RowSlot* slot) { return slot[-1].is_linked() ? 0 : min(slot->ahead(), int(slot->real)); };
  const auto tail = [](const RowSlot* slot) {  // its first byte
    const int first = slot->ahead() + ((slot->real - slot->ahead()) & ~15);
    return slot->is_linked() || first < 0 ? int(slot->real) : first;
  };
  const int per_warp = (count * 32 + Block::threads() - 1) / Block::threads();  // at most 32
  const RowSlot* slot = block.slots + threadIdx.x / 32 * per_warp;
  const bool has_edges = lane < per_warp && slot + lane < block.slots + count &&
                         (head(slot + lane) > 0 || tail(slot + lane) < int(slot[lane].real));
  uint32_t left = __ballot_sync(~0u, has_edges);
#pragma unroll 1
  for (slot += lane / lanes; left; slot += at_once, left >>= at_once) {
    if (!(left >> lane / lanes & 1)) continue;
    const auto store = [&](int at) {
      __stcs(reinterpret_cast<T*>(slot->data + at), *reinterpret_cast<const T*>(block.bytes + slot->place + at));
    };
    if (c < head(slot)) store(c);
    if (tail(slot) + c < int(slot->real)) store(tail(slot) + c);
  }
}

/// Shared slots to the global ones. Checks pads. Changes bytes behind the real ones.
__device__ __forceinline__ void store_rows(const Block& block) {
  const uint32_t bits = row_bits(block);
  if (bits % 16 == 0) return store_aligned(block);
  if (threadIdx.x < block.plan.slot_count) {
    const int real = block.slots[threadIdx.x].real;
    if (real > 0) check_pads(block, int(threadIdx.x), real & ~3, int(block.plan.cols));
  }
  link_rows(block);  // each thread handles the same slot
  __syncthreads();
  store_chunks(block);
  if (bits % 8 == 0)
    store_edges<uint64_t>(block);
  else
    bits % 2 ? store_edges<uint8_t>(block) : store_edges<uint16_t>(block);
}

}  // namespace mxfp4
