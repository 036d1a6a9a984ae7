// A block's slots from shared memory to global memory; pads are checked. Rows of the checkpoint begin at any byte.
#pragma once

#include <type_traits>

#include "kernels/pack/cuda/rows.cuh"

namespace mxfp4 {

/// Sixteen bytes of shared memory from any byte on; those outside the slot do not matter to the caller.
__device__ __forceinline__ uint4 shared_bytes(const Block& block, int at) {
  const uint2* const from = reinterpret_cast<const uint2*>(block.bytes + (at & ~7));
  return funnel(from[0], from[1], from[2], at & 7);
}

/// Whether the chunk of 16 bytes in which a slot ends can be stored with the next slot's first bytes.
__device__ __forceinline__ bool can_link(const Block& block, const RowSlot* slot) {
  const int real = slot->real, room = int(block.plan.cols + block.plan.link_room) - real;
  return slot->data + real == slot[1].data && real > slot->ahead() && slot[1].real >= 16 && room >= 20;
}

/// Copies the first bytes of the next slot in global memory behind a slot in shared memory. The chunk of 16 bytes that
/// spans both can then be stored whole. Call between barriers; each thread handles one slot.
__device__ __forceinline__ void link_rows(const Block& block) {
  if (threadIdx.x >= block.plan.slot_count) return;
  RowSlot* const slot = block.slots + threadIdx.x;
  const int real = slot->real, head = can_link(block, slot - 1) ? 0 : min(slot->ahead(), real);
  const bool linked = can_link(block, slot);
  slot->links = uint8_t(head * 2 + linked);
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

/// Counts a wrong byte of an item: (position << 16 | is << 8 | expected).
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
    const RowSlot slot = block.slots[s];
    use(s, (i - s * across) * 16, slot);
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
    if (c + 16 <= int(slot.real) + (slot.is_linked() ? 15 : 0))
      __stcs(reinterpret_cast<uint4*>(slot.data + c), shared_bytes(block, slot.place + c));
    else if (slot.real == 0)
      check_pads(block, s, first, first + 16);
  });
}

/// Copies `size` bytes if n has that bit. They begin at a multiple of `size` in global memory, and of sizeof(T) in
/// shared memory.
template <class T, int size>
__device__ __forceinline__ void store_piece(uint8_t* to, const uint8_t* from, int n) {
  if constexpr (size >= int(sizeof(T))) {
    if (!(n & size)) return;
    uint64_t bytes = 0;
#pragma unroll
    for (int i = 0; i < size; i += int(sizeof(T))) bytes |= uint64_t(*reinterpret_cast<const T*>(from + i)) << 8 * i;
    using Small = std::conditional_t<size == 2, uint16_t, uint8_t>;
    using Piece = std::conditional_t<size == 8, uint64_t, std::conditional_t<size == 4, uint32_t, Small>>;
    __stcs(reinterpret_cast<Piece*>(to), Piece(bytes));
  }
}

/// Stores the bytes at both ends of slots, in aligned chunks that store_chunks() does not store. Each thread stores one
/// end in pieces of 8, 4, 2 and 1 bytes. If one chunk holds the whole slot, the pieces have sizeof(T) bytes.
/// Slots begin and end at multiples of sizeof(T).
template <class T>
__device__ __forceinline__ void store_edges(const Block& block) {
#pragma unroll 1
  for (int i = threadIdx.x; i < 2 * int(block.plan.slot_count); i += Block::threads()) {
    const RowSlot slot = block.slots[i / 2];
    const bool is_tail = i % 2;
    const int begin = is_tail ? slot.tail() : 0, n = is_tail ? int(slot.real) - begin : slot.head();
    if (n == 0) continue;
    if (!is_tail && n < slot.ahead()) {
      for (int at = 0; at < n; at += int(sizeof(T)))
        store_piece<T, sizeof(T)>(slot.data + at, block.bytes + slot.place + at, sizeof(T));
      continue;
    }
    const auto store = [&](auto size) {  // tails have the larger pieces first, heads last
      constexpr int bytes = decltype(size)::value;
      const int at = begin + (is_tail ? n & -2 * bytes : n - (n & -bytes));
      store_piece<T, bytes>(slot.data + at, block.bytes + slot.place + at, n);
    };
    store(std::integral_constant<int, 8>());
    store(std::integral_constant<int, 4>());
    store(std::integral_constant<int, 2>());
    store(std::integral_constant<int, 1>());
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
