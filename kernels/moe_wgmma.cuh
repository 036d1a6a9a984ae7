// Many tokens per expert on SM90: wgmma with the weights as A, decoded into registers, and the tokens as B.
//
// A block takes 256 weight rows (four units) and up to kTokens tokens. One warpgroup copies weights, scales and the
// routed token rows into a ring of stages; two warpgroups multiply, each its own two units: warp w of a group decodes
// tile w of a unit, which is its 16 rows of the m64 operand. While one k16 step multiplies, the next is decoded.
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

template <class Fragment, int kTokens, bool kGated>
__device__ inline void wgmma_copy(const GemmArgs& a, const TokenTile& tile, int row_tile, uint8_t* shared) {
  using Stage = WgmmaStage<kTokens>;
  constexpr int pieces = Fragment::scale_pieces;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  uint64_t *full = reinterpret_cast<uint64_t*>(shared + Stage::barriers), *empty = full + Stage::count;

  const uint8_t* words[wgmma_units];
#pragma unroll
  for (int u = 0; u < wgmma_units; u++) {
    const int row = inside(a, unit_row<wgmma_units, kGated>(a, row_tile, u));
    words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Fragment::source(a.w, row, lane) +
               Fragment::chunk_step(a.w, row, warp);
  }
  const int scale_unit = thread / pieces % wgmma_units;
  const uint8_t* scales =
      a.w.scales + int64_t(tile.expert) * a.w.scale_stride +
      Fragment::scale_source(a.w, inside(a, unit_row<wgmma_units, kGated>(a, row_tile, scale_unit)), thread % pieces);
  const int scale_target = Stage::scales + scale_unit * 256 + thread % pieces * 16;
  int x[kTokens / 16];
#pragma unroll
  for (int i = 0; i < kTokens / 16; i++) {
    const int token = thread / 8 + 16 * i, position = tile.first + token;
    x[i] = token >= tile.count ? -1 : (a.rows ? a.rows[position] : position) * a.pitch + thread % 8 * 8;
  }
  const int used = (tile.count + 15) / 16;

  const int blocks = a.w.k / unit_k;
  int slot = 0, parity = 1;
  for (int block = 0; block < blocks; block++) {
    barrier_wait(&empty[slot], parity);
    uint8_t* stage = shared + slot * Stage::bytes;
#pragma unroll
    for (int u = 0; u < wgmma_units; u++) {
      copy16(stage + u * unit_bytes + warp * 512 + Fragment::target(lane), words[u]);
      words[u] += a.w.k_step;
    }
    if (thread < wgmma_units * pieces)
      copy16(stage + scale_target, scales + int64_t(block >> Fragment::scale_shift) * a.w.scale_step);
#pragma unroll
    for (int i = 0; i < kTokens / 16; i++)
      if (i < used)
        copy16_if(stage + Stage::tokens + token_offset(thread / 8 + 16 * i, thread % 8),
                  a.x + max(x[i], 0) + block * 64, x[i] >= 0);
    barrier_arrive_copies(&full[slot]);
    if (++slot == Stage::count) slot = 0, parity ^= 1;
  }
}

// ---- a multiplying warpgroup ---------------------------------------------------------------------------------------

/// A lane's words and scales of one block: tile `warp` of the group's two units.
template <class Fragment>
struct WgmmaWords {
  uint32_t w[2][1][4], scales[2][2][2];  // [unit][group of 32][row g or g + 8]

  __device__ void wait_and_load(const GemmArgs& a, const uint8_t* stage, uint64_t* full, int parity, int block,
                                int group, int warp, int lane) {
    barrier_wait(full, parity);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // tokens came by cp.async, wgmma reads them
#pragma unroll
    for (int u = 0; u < 2; u++) {
      const int unit = group * 2 + u;
      Fragment::template words<1>(stage + unit * unit_bytes, warp, lane, w[u]);
      const uint32_t word = Fragment::scale(stage + wgmma_units * unit_bytes + unit * 256, warp, lane / 4, block);
#pragma unroll
      for (int i = 0; i < 4; i++) scales[u][i / 2][i % 2] = fragment_scale(word, i / 2, i % 2, a.w.exponent);
    }
  }
  __device__ void decode(int step, uint32_t (&operand)[2][4]) const {
#pragma unroll
    for (int u = 0; u < 2; u++) decode_scaled<Fragment>(w[u][0][step], scales[u][step / 2], operand[u]);
  }
};

/// kUsed: tokens computed, a multiple of 16 and at least tile.count.
template <class Fragment, int kTokens, int kUsed, bool kGated>
__device__ inline void wgmma_product(const GemmArgs& a, const TokenTile& tile, int row_tile, uint8_t* shared) {
  using Stage = WgmmaStage<kTokens>;
  const int consumer = threadIdx.x - 128, group = consumer / 128, warp = consumer / 32 % 4, lane = consumer % 32;
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
  words.wait_and_load(a, shared, &full[0], 0, 0, group, warp, lane);
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
        words.wait_and_load(a, shared + slot * Stage::bytes, &full[slot], parity, block + 1, group, warp, lane);
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
      put_fragment<wgmma_units>(sums, (group * 2 + u) * 64 + warp * 16, j * 8, lane, &d[u][j * 4]);
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
