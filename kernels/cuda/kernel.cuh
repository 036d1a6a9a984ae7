// The pack and the unpack kernel, for any layout. blockIdx.x and y: the block of the storage, z: the item.
#pragma once

#include "kernels/cuda/permute.cuh"
#include "kernels/cuda/rows.cuh"

namespace mxfp4 {

/// Where the word at an address of the block lies. Tiles are counted in 32 bits, bytes in 64.
template <class L>
struct WordPlace {
  uint32_t tn, tb;
  int w;
  __device__ __forceinline__ WordPlace(Corner at, uint32_t address) {
    using Map = BlockMap<L>;
    tn = uint32_t(at.n) / L::tile_n + (address >> (Map::w_bits + Map::tb_bits));
    tb = uint32_t(at.b) / L::tile_b + (address >> Map::w_bits & ((1 << Map::tb_bits) - 1));
    w = int(address & ((1 << Map::w_bits) - 1));
  }
  __device__ __forceinline__ bool exists(Shape s) const {
    return tn < uint32_t(s.n) / L::tile_n && tb < uint32_t(s.b) / L::tile_b;
  }
  __device__ __forceinline__ int64_t offset(Shape s) const {
    return L::offset({uint32_t(s.n), uint32_t(s.b)}, tn, tb, w);
  }
};

/// whole(address, k): chunk k of the thread is one aligned chunk of the packed matrix. single(address, k, i): it is
/// not, and its word i exists.
template <class L, class Whole, class Single>
__device__ __forceinline__ void for_chunks(const Batch& batch, Corner at, Whole whole, Single single) {
  using Size = BlockSize<L>;
  constexpr BlockMap<L> map;
  constexpr bool in_one_tile = map.address(3) < words_per_tile<L>;
  const Shape s = batch.storage;
  uint8_t* const packed = item(batch).packed;
  const uint32_t mine = map.address(threadIdx.x * 4);
#pragma unroll
  for (int k = 0; k < Size::chunks_per_thread; ++k) {
    const uint32_t first = mine | map.address(k * Size::threads * 4);
    const WordPlace<L> place(at, first);
    if (!place.exists(s)) continue;
    const int64_t offset = place.offset(s);
    if (offset % 16 == 0 && (in_one_tile || WordPlace<L>(at, first | map.address(3)).exists(s))) {
      whole(reinterpret_cast<uint4*>(packed + offset), k);
      continue;
    }
#pragma unroll 1
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
  uint4 x[BlockSize<L>::chunks_per_thread] = {};
  for_chunks<L>(
      batch, at, [&](const uint4* from, int k) { x[k] = __ldg(from); },
      [&](const uint32_t* from, int k, int i) {
        const uint32_t word = __ldg(from);
        if (i == 0) x[k].x = word;
        if (i == 1) x[k].y = word;
        if (i == 2) x[k].z = word;
        if (i == 3) x[k].w = word;
      });
#pragma unroll
  for (int k = 0; k < BlockSize<L>::chunks_per_thread; ++k) words[chunk_of<L>(k)] = x[k];
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

/// Rows to words, in place. Between barriers. width: columns that the storage has here; the words of others do not
/// matter.
template <class L>
__device__ __forceinline__ void pack_words(uint4* block, int width) {
  constexpr BlockMap<L> map;
  constexpr int n = map.words;
  uint32_t out[Unit<L>::per_thread][n];
#pragma unroll
  for (int k = 0; k < Unit<L>::per_thread; ++k) {
    const Unit<L> unit(k);
    if (unit.column >= width) continue;
    uint32_t in[n];
#pragma unroll
    for (int p = 0; p < n / 4; ++p) {
      const uint4 x = block[unit.piece(p)];
      in[4 * p] = x.x, in[4 * p + 1] = x.y, in[4 * p + 2] = x.z, in[4 * p + 3] = x.w;
    }
    pack_unit<L, n>(in, out[k]);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < Unit<L>::per_thread; ++k) {
    const Unit<L> unit(k);
    if (unit.column >= width) continue;
#pragma unroll
    for (int j = 0; j < n; ++j)
      if constexpr (map.quad[0] >= 0) {
        constexpr int one = 1 << map.quad[0], two = 1 << map.quad[1];
        if (!(j & (one | two)))
          block[unit.word(j) >> 2] = make_uint4(out[k][j], out[k][j | one], out[k][j | two], out[k][j | one | two]);
      } else {
        reinterpret_cast<uint32_t*>(block)[unit.word(j)] = out[k][j];
      }
  }
}

/// Words to rows, in place. Between barriers.
template <class L>
__device__ __forceinline__ void unpack_words(uint4* block, int width) {
  constexpr BlockMap<L> map;
  constexpr int n = map.words;
  uint32_t out[Unit<L>::per_thread][n];
#pragma unroll
  for (int k = 0; k < Unit<L>::per_thread; ++k) {
    const Unit<L> unit(k);
    if (unit.column >= width) continue;
    uint32_t in[n];
#pragma unroll
    for (int j = 0; j < n; ++j)
      if constexpr (map.quad[0] >= 0) {
        constexpr int one = 1 << map.quad[0], two = 1 << map.quad[1];
        if (j & (one | two)) continue;
        const uint4 x = block[unit.word(j) >> 2];
        in[j] = x.x, in[j | one] = x.y, in[j | two] = x.z, in[j | one | two] = x.w;
      } else {
        in[j] = reinterpret_cast<const uint32_t*>(block)[unit.word(j)];
      }
    unpack_unit<L, n>(in, out[k]);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < Unit<L>::per_thread; ++k) {
    const Unit<L> unit(k);
    if (unit.column >= width) continue;
#pragma unroll
    for (int p = 0; p < n / 4; ++p)
      block[unit.piece(p)] = make_uint4(out[k][4 * p], out[k][4 * p + 1], out[k][4 * p + 2], out[k][4 * p + 3]);
  }
}

/// The bits of where the rows of the views begin, of their strides and of their length.
__device__ __forceinline__ uint32_t row_bits(const Batch& batch) {
  const MutableMatrix& m = batch.matrix;
  uint8_t* const* const view = item(batch).view;
  uint32_t bits = uint32_t(reinterpret_cast<uintptr_t>(view[0]) | m.view[0].stride | m.real.b);
  if (m.views == 2) bits |= uint32_t(reinterpret_cast<uintptr_t>(view[1]) | m.view[1].stride);
  return bits;
}

template <class L>
__global__ void __launch_bounds__(BlockSize<L>::threads, BlockSize<L>::per_multiprocessor)
    pack_kernel(const __grid_constant__ Batch batch) {
  using Size = BlockSize<L>;
  __shared__ uint4 block[Size::chunks];
  __shared__ RowSlot slots[Size::rows];
  const Corner at = corner<Size>();
  const bool pad_rows = __syncthreads_or(find_rows<Size>(batch, at, slots));
  load_rows<Size>(batch, at, slots, row_bits(batch), pad_rows, batch.matrix.add, block);
  __syncthreads();
  if constexpr (is_plain<L>) {
    find_packed_rows<Size>(batch, at, slots);
    __syncthreads();
    store_rows<Size>(slots, uint32_t(batch.storage.b), block);
  } else {
    pack_words<L>(block, width_here<Size>(batch, at));
    __syncthreads();
    store_words<L>(batch, at, block);
  }
}

template <class L>
__global__ void __launch_bounds__(BlockSize<L>::threads, BlockSize<L>::per_multiprocessor)
    unpack_kernel(const __grid_constant__ Batch batch) {
  using Size = BlockSize<L>;
  __shared__ uint4 block[Size::chunks];
  __shared__ RowSlot slots[Size::rows];
  const Corner at = corner<Size>();
  const int width = width_here<Size>(batch, at);
  if constexpr (is_plain<L>) {
    find_packed_rows<Size>(batch, at, slots);
    __syncthreads();
    load_rows<Size>(batch, at, slots, uint32_t(batch.storage.b), true, 0, block);
  } else {
    load_words<L>(batch, at, block);
    __syncthreads();
    unpack_words<L>(block, width);
  }
  __syncthreads();
  const bool pad_rows = __syncthreads_or(find_rows<Size>(batch, at, slots));
  if (batch.matrix.add) {
    add_to_rows<Size>(uint8_t(-batch.matrix.add), block);
    __syncthreads();
  }
  store_rows<Size>(slots, row_bits(batch), block);
  if (pad_rows || real_here<Size>(batch, at) < width) check_pads<Size>(batch, at, slots, block);
}

}  // namespace mxfp4
