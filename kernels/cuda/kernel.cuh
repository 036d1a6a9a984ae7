// The pack and the unpack kernel, for any layout. blockIdx.x: the block of the storage, blockIdx.y: the item.
#pragma once

#include "kernels/cuda/permute.cuh"
#include "kernels/cuda/rows.cuh"

namespace mxfp4 {

/// Where the word at an address of the block lies.
template <class L>
struct WordPlace {
  int64_t tn, tb;
  int w;
  __device__ __forceinline__ WordPlace(Corner at, uint32_t address) {
    using Map = BlockMap<L>;
    tn = at.n / L::tile_n + (address >> (Map::w_bits + Map::tb_bits));
    tb = at.b / L::tile_b + (address >> Map::w_bits & ((1 << Map::tb_bits) - 1));
    w = int(address & ((1 << Map::w_bits) - 1));
  }
  __device__ __forceinline__ bool exists(Shape s) const { return tn < s.n / L::tile_n && tb < s.b / L::tile_b; }
  __device__ __forceinline__ int64_t offset(Shape s) const { return L::offset(s, tn, tb, w); }
};

/// whole(address, k): chunk k of the thread is one aligned chunk of the packed matrix. single(address, k, i): it is
/// not, and its word i exists.
template <class L, class Whole, class Single>
__device__ __forceinline__ void for_chunks(const Batch& batch, Corner at, Whole whole, Single single) {
  using Size = BlockSize<L>;
  constexpr BlockMap<L> map;
  const Shape s = batch.storage;
  uint8_t* const packed = batch.items[blockIdx.y].packed;
  const uint32_t mine = map.address(threadIdx.x * 4);
#pragma unroll
  for (int k = 0; k < Size::chunks_per_thread; ++k) {
    const uint32_t first = mine | map.address(k * Size::threads * 4);
    const WordPlace<L> place(at, first);
    if (!place.exists(s)) continue;
    const int64_t offset = place.offset(s);
    if (offset % 16 == 0 && WordPlace<L>(at, first | map.address(3)).exists(s)) {
      whole(reinterpret_cast<uint4*>(packed + offset), k);
      continue;
    }
    for (int i = 0; i < 4; ++i) {
      const WordPlace<L> one(at, first | map.address(i));
      if (one.exists(s)) single(reinterpret_cast<uint32_t*>(packed + one.offset(s)), k, i);
    }
  }
}

template <class L>
__device__ __forceinline__ uint32_t chunk_of(int k) {
  return swizzle(threadIdx.x) ^ swizzle(k * BlockSize<L>::threads);
}

template <class L>
__device__ __forceinline__ void store_words(const Batch& batch, Corner at, const uint4* words) {
  for_chunks<L>(
      batch, at, [&](uint4* to, int k) { __stcs(to, words[chunk_of<L>(k)]); },
      [&](uint32_t* to, int k, int i) { __stcs(to, reinterpret_cast<const uint32_t*>(words + chunk_of<L>(k))[i]); });
}

template <class L>
__device__ __forceinline__ void load_words(const Batch& batch, Corner at, uint4* words) {
  uint4 x[BlockSize<L>::chunks_per_thread];
  bool loaded[BlockSize<L>::chunks_per_thread] = {};
  for_chunks<L>(
      batch, at, [&](const uint4* from, int k) { x[k] = __ldg(from), loaded[k] = true; },
      [&](const uint32_t* from, int k, int i) {
        reinterpret_cast<uint32_t*>(words + chunk_of<L>(k))[i] = __ldg(from);
      });
#pragma unroll
  for (int k = 0; k < BlockSize<L>::chunks_per_thread; ++k)
    if (loaded[k]) words[chunk_of<L>(k)] = x[k];
}

/// A unit of the thread: where its pieces and words are in shared memory.
template <class L>
struct Unit {
  static constexpr int per_thread = BlockSize<L>::chunks_per_thread / BlockMap<L>().pieces;
  uint32_t chunk, position;  // of its first row and word, swizzled
  int column;                // of its first byte
  __device__ __forceinline__ explicit Unit(int k) {
    constexpr BlockMap<L> map;
    chunk = swizzle(map.unit_chunk(threadIdx.x)) ^ swizzle(map.unit_chunk(k * BlockSize<L>::threads));
    column =
        int(map.unit_chunk(threadIdx.x) | map.unit_chunk(k * BlockSize<L>::threads)) % (BlockSize<L>::cols / 16) * 16;
    const uint32_t p = map.unit_position(threadIdx.x), q = map.unit_position(k * BlockSize<L>::threads);
    position = (swizzle(p >> 2) ^ swizzle(q >> 2)) << 2 | ((p ^ q) & 3);
  }
  __device__ __forceinline__ uint32_t piece(int p) const {
    constexpr BlockMap<L> map;
    return chunk ^ swizzle(map.piece[p]);
  }
  __device__ __forceinline__ uint32_t word(int j) const {
    constexpr BlockMap<L> map;
    return position ^ (swizzle(map.position[j] >> 2) << 2 | (map.position[j] & 3));
  }
};

/// width: columns that the storage has here; the words of others are left alone.
template <class L>
__device__ __forceinline__ void pack_words(const uint4* rows, int width, uint4* words) {
  constexpr BlockMap<L> map;
  constexpr int n = map.words;
#pragma unroll
  for (int k = 0; k < Unit<L>::per_thread; ++k) {
    const Unit<L> unit(k);
    if (unit.column >= width) continue;
    uint32_t in[n], out[n];
#pragma unroll
    for (int p = 0; p < n / 4; ++p) {
      const uint4 x = rows[unit.piece(p)];
      in[4 * p] = x.x, in[4 * p + 1] = x.y, in[4 * p + 2] = x.z, in[4 * p + 3] = x.w;
    }
    pack_unit<L, n>(in, out);
#pragma unroll
    for (int j = 0; j < n; ++j)
      if constexpr (map.quad[0] >= 0) {
        constexpr int one = 1 << map.quad[0], two = 1 << map.quad[1];
        if (!(j & (one | two)))
          words[unit.word(j) >> 2] = make_uint4(out[j], out[j | one], out[j | two], out[j | one | two]);
      } else {
        reinterpret_cast<uint32_t*>(words)[unit.word(j)] = out[j];
      }
  }
}

template <class L>
__device__ __forceinline__ void unpack_words(const uint4* words, int width, uint4* rows) {
  constexpr BlockMap<L> map;
  constexpr int n = map.words;
#pragma unroll
  for (int k = 0; k < Unit<L>::per_thread; ++k) {
    const Unit<L> unit(k);
    if (unit.column >= width) continue;
    uint32_t in[n], out[n];
#pragma unroll
    for (int j = 0; j < n; ++j)
      if constexpr (map.quad[0] >= 0) {
        constexpr int one = 1 << map.quad[0], two = 1 << map.quad[1];
        if (j & (one | two)) continue;
        const uint4 x = words[unit.word(j) >> 2];
        in[j] = x.x, in[j | one] = x.y, in[j | two] = x.z, in[j | one | two] = x.w;
      } else {
        in[j] = reinterpret_cast<const uint32_t*>(words)[unit.word(j)];
      }
    unpack_unit<L, n>(in, out);
#pragma unroll
    for (int p = 0; p < n / 4; ++p)
      rows[unit.piece(p)] = make_uint4(out[4 * p], out[4 * p + 1], out[4 * p + 2], out[4 * p + 3]);
  }
}

/// Every row of the item, real or packed, begins and ends at a multiple of 16.
__device__ __forceinline__ bool rows_aligned(const Batch& batch) {
  const MutableMatrix& m = batch.matrix;
  const Batch::Item& item = batch.items[blockIdx.y];
  uintptr_t bits = reinterpret_cast<uintptr_t>(item.view[0]) | m.view[0].stride | m.real.b;
  if (m.views == 2) bits |= reinterpret_cast<uintptr_t>(item.view[1]) | m.view[1].stride;
  return bits % 16 == 0;
}

template <class L>
__global__ void __launch_bounds__(BlockSize<L>::threads, BlockSize<L>::per_multiprocessor)
    pack_kernel(const __grid_constant__ Batch batch) {
  using Size = BlockSize<L>;
  __shared__ uint4 rows[Size::chunks];
  __shared__ RowSlot slots[Size::rows];
  const Corner at = corner<Size>(batch);
  find_rows<Size>(batch, at, slots);
  __syncthreads();
  load_rows<Size>(batch, at, slots, rows_aligned(batch), rows);
  __syncthreads();
  if (batch.matrix.add) {
    add_to_rows<Size>(batch.matrix.add, rows);
    __syncthreads();
  }
  if constexpr (is_plain<L>) {
    find_packed_rows<Size>(batch, at, slots);
    __syncthreads();
    store_rows<Size>(slots, batch.storage.b % 16 == 0, rows);
  } else {
    __shared__ uint4 words[Size::chunks];
    pack_words<L>(rows, width_here<Size>(batch, at), words);
    __syncthreads();
    store_words<L>(batch, at, words);
  }
}

template <class L>
__global__ void __launch_bounds__(BlockSize<L>::threads, BlockSize<L>::per_multiprocessor)
    unpack_kernel(const __grid_constant__ Batch batch) {
  using Size = BlockSize<L>;
  __shared__ uint4 rows[Size::chunks];
  __shared__ RowSlot slots[Size::rows];
  const Corner at = corner<Size>(batch);
  if constexpr (is_plain<L>) {
    find_packed_rows<Size>(batch, at, slots);
    __syncthreads();
    load_rows<Size>(batch, at, slots, batch.storage.b % 16 == 0, rows);
  } else {
    __shared__ uint4 words[Size::chunks];
    load_words<L>(batch, at, words);
    __syncthreads();
    unpack_words<L>(words, width_here<Size>(batch, at), rows);
  }
  __syncthreads();
  const bool any_pads = __syncthreads_or(find_rows<Size>(batch, at, slots));
  if (batch.matrix.add) {
    add_to_rows<Size>(uint8_t(-batch.matrix.add), rows);
    __syncthreads();
  }
  store_rows<Size>(slots, rows_aligned(batch), rows);
  if (any_pads) check_pads<Size>(batch, at, slots, rows);
}

}  // namespace mxfp4
