// The pack and the unpack kernel, for any layout. blockIdx.x and y: the block of the storage, or the first of
// its two parts (Interleave), z: the item.
#pragma once

#include "kernels/pack/cuda/permute.cuh"
#include "kernels/pack/cuda/rows.cuh"

namespace mxfp4 {

/// The storage place of the word at an address of the block. Tiles are counted in 32 bits, bytes in 64.
template <class L>
struct WordPlace {
  uint32_t tn, tb;
  int w, end;
  __device__ __forceinline__ WordPlace(Corner at, uint32_t address) {
    using Map = BlockMap<L>;
    tn = uint32_t(at.n) / L::tile_n + (address >> (Map::w_bits + Map::tb_bits));
    tb = uint32_t(at.b) / L::tile_b + (address >> Map::w_bits & ((1 << Map::tb_bits) - 1));
    w = int(address & ((1 << Map::w_bits) - 1));
    end = at.end;
  }
  __device__ __forceinline__ bool exists(Shape s) const {
    return tn < uint32_t(end) / L::tile_n && tb < uint32_t(s.b) / L::tile_b;
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

/// Sixteen bytes from global to shared memory, past the registers; there after wait_for_copies() and a barrier. The
/// rest of their line comes into the L2 cache: a block near this one may have it.
__device__ __forceinline__ void copy_chunk(uint4* to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
               "l"(from));
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Bytes beyond the storage are undefined.
template <class L>
__device__ __forceinline__ void load_words(const Batch& batch, Corner at, uint4* words) {
  for_chunks<L>(
      batch, at, [&](const uint4* from, int k) { copy_chunk(words + chunk_of<L>(k), from); },
      [&](const uint32_t* from, int k, int i) {
        reinterpret_cast<uint32_t*>(words + chunk_of<L>(k))[i] = __ldg(from);
      });
}

/// The places in shared memory of the pieces and words of one unit of the thread.
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
      in[4 * p] = x.x;
      in[4 * p + 1] = x.y;
      in[4 * p + 2] = x.z;
      in[4 * p + 3] = x.w;
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
        in[j] = x.x;
        in[j | one] = x.y;
        in[j | two] = x.z;
        in[j | one | two] = x.w;
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

/// The bitwise OR of the views' addresses, their strides and the length of their rows. Its lowest set bit is the common
/// alignment.
__device__ __forceinline__ uint32_t row_bits(const Batch& batch) {
  const MutableMatrix& m = batch.matrix;
  uint8_t* const* const view = item(batch).view;
  uint32_t bits = uint32_t(reinterpret_cast<uintptr_t>(view[0]) | m.view[0].stride | m.real.b);
  if (m.views == 2) bits |= uint32_t(reinterpret_cast<uintptr_t>(view[1]) | m.view[1].stride);
  return bits;
}

template <class L, int parts>
__global__ void __launch_bounds__(BlockSize<L>::threads, BlockSize<L>::blocks_to_pack)
    pack_kernel(const __grid_constant__ Batch batch) {
  using Size = BlockSize<L, parts>;
  __shared__ Shared<Size> shared;
  uint4* const block = shared.chunks;
  RowSlot* const slots = shared.slots();
  const bool pad_rows = __syncthreads_or(find_rows<Size>(batch, slots));
  load_rows<Size>(batch, slots, row_bits(batch), pad_rows, batch.matrix.add, block);
  __syncthreads();
  if constexpr (is_plain<L>) {
    find_packed_rows<Size>(batch, slots);
    __syncthreads();
    store_rows<Size>(slots, uint32_t(batch.storage.b), block);
  } else {
#pragma unroll
    for (int part = 0; part < parts; ++part) pack_words<L>(block + part * Size::chunks, width_here<Size>(batch));
    __syncthreads();
#pragma unroll
    for (int part = 0; part < parts; ++part)
      store_words<L>(batch, corner<Size>(batch, part), block + part * Size::chunks);
  }
}

template <class L, int parts>
__global__ void __launch_bounds__(BlockSize<L>::threads, BlockSize<L>::blocks_to_unpack)
    unpack_kernel(const __grid_constant__ Batch batch) {
  using Size = BlockSize<L, parts>;
  __shared__ Shared<Size> shared;
  uint4* const block = shared.chunks;
  RowSlot* const slots = shared.slots();
  const int width = width_here<Size>(batch);
  bool pad_rows;
  if constexpr (is_plain<L>) {
    find_packed_rows<Size>(batch, slots);
    __syncthreads();
    load_rows<Size>(batch, slots, uint32_t(batch.storage.b), true, 0, block);
    __syncthreads();
    pad_rows = __syncthreads_or(find_rows<Size>(batch, slots));
  } else {
#pragma unroll
    for (int part = 0; part < parts; ++part)
      load_words<L>(batch, corner<Size>(batch, part), block + part * Size::chunks);
    pad_rows = find_rows<Size>(batch, slots);
    wait_for_copies();
    pad_rows = __syncthreads_or(pad_rows);
#pragma unroll
    for (int part = 0; part < parts; ++part) unpack_words<L>(block + part * Size::chunks, width);
    __syncthreads();
  }
  if (batch.matrix.add) {
    add_to_rows<Size>(uint8_t(-batch.matrix.add), block);
    __syncthreads();
  }
  if (pad_rows || real_here<Size>(batch) < width) check_pads<Size>(batch, slots, block);
  store_rows<Size>(slots, row_bits(batch), block);
}

}  // namespace mxfp4
