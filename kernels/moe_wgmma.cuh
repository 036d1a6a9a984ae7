// Many tokens per expert on SM90: wgmma with the weights as A, decoded into registers, and the tokens as B.
//
// A block takes 256 weight rows (four units) and up to kTokens tokens. One warpgroup copies weights, scales and the
// routed token rows into a ring of stages; two warpgroups multiply, each its own two units. The 64 rows of an operand
// are a tile of each warp: warps 0, 1 take the first unit's tiles 0, 2 and then 1, 3, warps 2, 3 the second unit's. While one k16 step multiplies, the next is decoded.
#pragma once

#include "kernels/moe_gemm.cuh"
#include "kernels/moe_wgmma_n.cuh"

namespace mxfp4 {

inline constexpr int wgmma_units = 4, wgmma_threads = 384, wgmma_consumers = 256;

template <int kTokens>
struct WgmmaStage {
  static constexpr int scales = wgmma_units * unit_bytes, tokens = scales + wgmma_units * 256;
  static constexpr int bytes = tokens + kTokens * 128;
  static constexpr int blocks_per_sm = kTokens > 32 ? 1 : 2;
  static constexpr int count = kTokens > 64 ? 8 : kTokens > 32 ? 10 : 8;
  static constexpr int ring = count * bytes, sums = kTokens * sum_pitch<wgmma_units> * 4;
  static constexpr int barriers = ring > sums ? ring : sums;  // offset: full, then empty
  static constexpr int shared = barriers + count * 16;
};

// ---- mbarriers -----------------------------------------------------------------------------------------------------

__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives when every cp.async of this thread has landed.
__device__ inline void barrier_arrive_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@done bra over;\n"
      "bra again;\nover:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ inline void consumers_sync() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// ---- the copying warpgroup -----------------------------------------------------------------------------------------

/// What one thread copies of every stage, walking along k.
template <class Fragment, int kTokens, bool kGated>
struct WgmmaCopy {
  using Stage = WgmmaStage<kTokens>;
  const GemmArgs& a;
  const uint8_t *words[wgmma_units], *scales;
  int x[kTokens / 16], scale_target, thread, tokens;

  __device__ WgmmaCopy(const GemmArgs& args, const TokenTile& tile, int row_tile)
      : a(args), thread(threadIdx.x), tokens(tile.count) {
    constexpr int pieces = Fragment::scale_pieces;
    const int warp = thread / 32, lane = thread % 32, scale_unit = thread / pieces % wgmma_units;
#pragma unroll
    for (int u = 0; u < wgmma_units; u++) {
      const int row = inside(a, unit_row<wgmma_units, kGated>(a, row_tile, u));
      words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Fragment::source(a.w, row, lane) +
                 Fragment::chunk_step(a.w, row, warp);
    }
    const int scale_row = inside(a, unit_row<wgmma_units, kGated>(a, row_tile, scale_unit));
    scales = a.w.scales + int64_t(tile.expert) * a.w.scale_stride +
             Fragment::scale_source(a.w, scale_row, thread % pieces);
    scale_target = Stage::scales + scale_unit * 256 + thread % pieces * 16;
  }
  __device__ void find_tokens(const TokenTile& tile) {
#pragma unroll
    for (int i = 0; i < kTokens / 16; i++) {
      const int token = thread / 8 + 16 * i, position = tile.first + token;
      x[i] = token < tokens ? (a.rows ? a.rows[position] : position) * a.pitch + thread % 8 * 8 : 0;
    }
  }
  __device__ void copy_words(uint8_t* stage, int block) {
#pragma unroll
    for (int u = 0; u < wgmma_units; u++) {
      copy16(stage + u * unit_bytes + thread / 32 * 512 + Fragment::target(thread % 32), words[u]);
      words[u] += a.w.k_step;
    }
    if (thread < wgmma_units * Fragment::scale_pieces)
      copy16(stage + scale_target, scales + int64_t(block >> Fragment::scale_shift) * a.w.scale_step);
  }
  __device__ void copy_tokens(uint8_t* stage, int block) const {
#pragma unroll
    for (int i = 0; i < kTokens / 16; i++)
      if (16 * i < tokens)
        copy16_if(stage + Stage::tokens + token_offset(thread / 8 + 16 * i, thread % 8), a.x + x[i] + block * 64,
                  thread / 8 + 16 * i < tokens);
  }
};

template <class Fragment, int kTokens, bool kGated>
__device__ inline void wgmma_copy(const GemmArgs& a, const TokenTile& tile, int row_tile, uint8_t* shared) {
  using Stage = WgmmaStage<kTokens>;
  uint64_t *full = reinterpret_cast<uint64_t*>(shared + Stage::barriers), *empty = full + Stage::count;
  WgmmaCopy<Fragment, kTokens, kGated> copy(a, tile, row_tile);
  const int blocks = a.w.k / unit_k, first = min(blocks, Stage::count);
  for (int block = 0; block < first; block++) copy.copy_words(shared + block * Stage::bytes, block);
  if (!kGated) wait_for_previous();
  copy.find_tokens(tile);
  for (int block = 0; block < first; block++) {
    copy.copy_tokens(shared + block * Stage::bytes, block);
    barrier_arrive_copies(&full[block]);
  }
  int slot = 0, parity = 0;
  for (int block = first; block < blocks; block++) {
    barrier_wait(&empty[slot], parity);
    copy.copy_words(shared + slot * Stage::bytes, block);
    copy.copy_tokens(shared + slot * Stage::bytes, block);
    barrier_arrive_copies(&full[slot]);
    if (++slot == Stage::count) slot = 0, parity ^= 1;
  }
}

// ---- a multiplying warpgroup ---------------------------------------------------------------------------------------

/// A lane's words and scales of one block: tiles first, first + 1 of one unit.
template <class Fragment>
struct WgmmaWords {
  uint32_t w[2][4], scales[2][2][2];  // [tile], of scales also [group of 32][row g or g + 8]

  __device__ void wait_and_load(const GemmArgs& a, const uint8_t* stage, uint64_t* full, int parity, int block,
                                int unit, int first, int lane) {
    barrier_wait(full, parity);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // tokens came by cp.async, wgmma reads them
    Fragment::template words<2>(stage + unit * unit_bytes, first, lane, w);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint8_t* scale = stage + wgmma_units * unit_bytes + unit * 256;
      const uint32_t word = Fragment::scale(scale, first + i, lane / 4, block);
#pragma unroll
      for (int j = 0; j < 4; j++) scales[i][j / 2][j % 2] = fragment_scale(word, j / 2, j % 2, a.w.exponent);
    }
  }
  __device__ void decode(int step, uint32_t (&operand)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 2; i++) decode_scaled<Fragment>(w[i][step], scales[i][step / 2], operand[i]);
  }
};

/// kUsed: tokens computed, a multiple of 16 and at least tile.count.
template <class Fragment, int kTokens, int kUsed, bool kGated>
__device__ inline void wgmma_product(const GemmArgs& a, const TokenTile& tile, int row_tile, uint8_t* shared) {
  using Stage = WgmmaStage<kTokens>;
  const int consumer = threadIdx.x - 128, lane = consumer % 32;
  const int unit = consumer / 64, first = consumer / 32 % 2 * 2;
  uint64_t *full = reinterpret_cast<uint64_t*>(shared + Stage::barriers), *empty = full + Stage::count;
  const int blocks = a.w.k / unit_k;
  float d[2][kUsed / 2];
#pragma unroll
  for (int u = 0; u < 2; u++)
#pragma unroll
    for (int i = 0; i < kUsed / 2; i++) d[u][i] = 0;

  WgmmaWords<Fragment> words;
  uint32_t operand[2][2][4];
  int slot = 0, parity = 0;
  words.wait_and_load(a, shared, &full[0], 0, 0, unit, first, lane);
  words.decode(0, operand[0]);
  for (int block = 0; block < blocks; block++) {
    const uint64_t b = token_descriptor(shared + slot * Stage::bytes + Stage::tokens);
    uint64_t* const done = &empty[slot];
#pragma unroll
    for (int s = 0; s < 4; s++) {
      wgmma_fence();
#pragma unroll
      for (int u = 0; u < 2; u++) Wgmma<kUsed>::multiply(d[u], operand[s % 2][u], b + s * descriptor_step);
      wgmma_commit();
      wgmma_wait<1>();
      if (s == 3 && block + 1 < blocks) {
        if (++slot == Stage::count) slot = 0, parity ^= 1;
        words.wait_and_load(a, shared + slot * Stage::bytes, &full[slot], parity, block + 1, unit, first, lane);
      }
      words.decode((s + 1) % 4, operand[(s + 1) % 2]);
    }
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(done);
  }
  consumers_sync();
  float* sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int u = 0; u < 2; u++)
#pragma unroll
    for (int j = 0; j < kUsed / 8; j++)
      put_fragment<wgmma_units>(sums, unit * 64 + (first + u) * 16, j * 8, lane, &d[u][j * 4]);
  consumers_sync();
  finish_tile<wgmma_units, kGated, 1>(a, tile, row_tile, sums, 0, consumer, wgmma_consumers);
}

template <int kTokens, bool kCopies>
__device__ inline void set_registers() {
  constexpr int two_blocks = kCopies ? 40 : 96, one_block = kCopies ? 56 : 224;
  constexpr int count = WgmmaStage<kTokens>::blocks_per_sm == 2 ? two_blocks : one_block;
  if constexpr (kCopies)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

template <class Fragment, int kTokens, bool kGated>
__global__ void __launch_bounds__(wgmma_threads, WgmmaStage<kTokens>::blocks_per_sm) wgmma_kernel(const GemmArgs a) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Stage = WgmmaStage<kTokens>;
  if (kGated) wait_for_previous();  // the second product's token tiles are older than the kernel before it
  start_next();
  if (int(blockIdx.y) >= *a.tile_count) return;
  const TokenTile tile = a.tiles[blockIdx.y];
  if (threadIdx.x == 0) {
    uint64_t* barriers = reinterpret_cast<uint64_t*>(shared + Stage::barriers);
    for (int i = 0; i < Stage::count; i++) {
      barrier_init(&barriers[i], 128);
      barrier_init(&barriers[Stage::count + i], wgmma_consumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int row_tile = blockIdx.x;
  if (threadIdx.x < 128) {
    set_registers<kTokens, true>();
    wgmma_copy<Fragment, kTokens, kGated>(a, tile, row_tile, shared);
  } else {
    set_registers<kTokens, false>();
    if constexpr (kTokens == 128) {
      if (tile.count <= 80)
        wgmma_product<Fragment, kTokens, 80, kGated>(a, tile, row_tile, shared);
      else if (tile.count <= 96)
        wgmma_product<Fragment, kTokens, 96, kGated>(a, tile, row_tile, shared);
      else if (tile.count <= 112)
        wgmma_product<Fragment, kTokens, 112, kGated>(a, tile, row_tile, shared);
      else
        wgmma_product<Fragment, kTokens, 128, kGated>(a, tile, row_tile, shared);
    } else {
      if (tile.count <= kTokens / 2)
        wgmma_product<Fragment, kTokens, kTokens / 2, kGated>(a, tile, row_tile, shared);
      else
        wgmma_product<Fragment, kTokens, kTokens, kGated>(a, tile, row_tile, shared);
    }
  }
}

}  // namespace mxfp4
