// Many tokens per expert on SM90: wgmma with the weights as A, decoded into registers, and the tokens as B.
//
// A block takes 256 weight rows (four units) and up to kTokens tokens. One warpgroup copies weights, scales and the
// routed token rows into a ring of stages; two warpgroups multiply, each its own two units. The 64 rows of an operand
// are one tile of each warp. Warps 0 and 1 take tiles 0, 2 and then 1, 3 of the first unit, warps 2 and 3 those of the
// second unit. While one k16 step multiplies, the next is decoded.
#pragma once

#include "kernels/moe/cuda/moe_gemm.cuh"
#include "kernels/moe/cuda/moe_wgmma_n.cuh"

namespace mxfp4 {

inline constexpr int wgmma_units = 4;
inline constexpr int wgmma_copiers = 128, wgmma_consumers = 256, wgmma_threads = wgmma_copiers + wgmma_consumers;
inline constexpr int consumers_barrier = 1;  // 0 is that of __syncthreads()

/// One span of four units, their scales (256 bytes a unit) and the tokens: [unit][block], [unit], [block].
template <OperandReader Reader, int kTokens>
struct WgmmaStage {
  static constexpr int span = Reader::span, scales = wgmma_units * span * unit_bytes;
  static constexpr int tokens = scales + wgmma_units * 256, bytes = tokens + span * kTokens * 128;
  static constexpr int blocks_per_sm = kTokens > 32 ? 1 : 2;
  static constexpr int count = (kTokens == 64 ? 12 : 8) / span;
  static constexpr int ring = count * bytes, sums = kTokens * sum_pitch<wgmma_units> * 4;
  static constexpr int barriers = ring > sums ? ring : sums;  // offset: full, then empty
  static constexpr int shared = barriers + count * 16;
  static_assert(bytes % 1024 == 0 && tokens % 1024 == 0 && shared * blocks_per_sm <= 227 * 1024);
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
__device__ inline void consumers_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(consumers_barrier), "n"(wgmma_consumers) : "memory");
}

// ---- the copying warpgroup -----------------------------------------------------------------------------------------
// It has one warp on each scheduler. With 240 instructions a stage it is the bottleneck, with 60 it is not.

/// The copies of one thread in every stage, along k. Rows of tokens that the tile does not have are not written:
/// results from these rows are columns that no one reads.
template <OperandReader Reader, int kTokens, bool kGated>
struct WgmmaCopy {
  using Stage = WgmmaStage<Reader, kTokens>;
  const GemmArgs& a;
  const uint8_t *words[wgmma_units], *scales;
  const __nv_bfloat16* x;
  int row[wgmma_units], token[kTokens / 16], rows, scale_target, token_target, thread;

  __device__ WgmmaCopy(const GemmArgs& args, const TokenTile& tile, int row_tile)
      : a(args), x(args.x), thread(threadIdx.x) {
    constexpr int pieces = Reader::scale_pieces;
    const int scale_unit = thread / pieces % wgmma_units;
#pragma unroll
    for (int u = 0; u < wgmma_units; u++) {
      row[u] = inside(a, unit_row<wgmma_units, kGated>(a, row_tile, u));
      words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Reader::source(a.w, row[u], thread % 32);
    }
    const int scale_row = inside(a, unit_row<wgmma_units, kGated>(a, row_tile, scale_unit));
    scales =
        a.w.scales + int64_t(tile.expert) * a.w.scale_stride + Reader::scale_source(a.w, scale_row, thread % pieces);
    scale_target = Stage::scales + scale_unit * 256 + thread % pieces * 16;
    token_target = Stage::tokens + token_offset(thread / 8, thread % 8);  // and every 16 rows on
    rows = (tile.count - thread / 8 + 15) / 16;                           // that this thread copies
  }
  __device__ void find_tokens(const TokenTile& tile) {
#pragma unroll
    for (int i = 0; i < kTokens / 16; i++) {
      const int position = tile.first + min(thread / 8 + 16 * i, tile.count - 1);
      token[i] = (a.rows ? a.rows[position] : position) * a.pitch + thread % 8 * 8;
    }
  }
  __device__ void copy_words(uint8_t* stage) {
#pragma unroll
    for (int u = 0; u < wgmma_units; u++) {
#pragma unroll
      for (int c = 0; c < Stage::span; c++)
        copy_weight_piece(stage + u * Stage::span * unit_bytes + Reader::target(thread / 32 + 4 * c, thread % 32),
                          words[u] + Reader::chunk_step(a.w, row[u], thread / 32 + 4 * c));
      words[u] += a.w.k_step;
    }
    if (thread < wgmma_units * Reader::scale_pieces) copy_weight_piece(stage + scale_target, scales);
    scales += a.w.scale_step;
  }
  __device__ void copy_tokens(uint8_t* stage) {
#pragma unroll
    for (int b = 0; b < Stage::span; b++) {
#pragma unroll
      for (int i = 0; i < kTokens / 16; i++)
        if (i < rows) copy_token_piece(stage + token_target + b * kTokens * 128 + i * 2048, x + token[i]);
      x += unit_k;
    }
  }
};

template <OperandReader Reader, int kTokens, bool kGated>
__device__ inline void wgmma_copy(const GemmArgs& a, const TokenTile& tile, int row_tile, uint8_t* shared) {
  using Stage = WgmmaStage<Reader, kTokens>;
  uint64_t *full = reinterpret_cast<uint64_t*>(shared + Stage::barriers), *empty = full + Stage::count;
  WgmmaCopy<Reader, kTokens, kGated> copy(a, tile, row_tile);
  const int spans = a.w.k / (Stage::span * unit_k), first = min(spans, Stage::count);
  // Weights do not depend on the kernel before this one.
#pragma unroll 1
  for (int i = 0; i < first; i++) copy.copy_words(shared + i * Stage::bytes);
  if (!kGated) wait_for_previous();
  copy.find_tokens(tile);
#pragma unroll 1
  for (int i = 0; i < first; i++) {
    copy.copy_tokens(shared + i * Stage::bytes);
    barrier_arrive_copies(&full[i]);
  }
  int slot = 0, parity = 0;
#pragma unroll 1
  for (int i = first; i < spans; i++) {
    barrier_wait(&empty[slot], parity);
    copy.copy_words(shared + slot * Stage::bytes);
    copy.copy_tokens(shared + slot * Stage::bytes);
    barrier_arrive_copies(&full[slot]);
    if (++slot == Stage::count) {
      slot = 0;
      parity ^= 1;
    }
  }
}

// ---- a multiplying warpgroup ---------------------------------------------------------------------------------------

/// A lane's words and scales of one block: tiles first, first + 1 of one unit.
template <OperandReader Reader>
struct WgmmaWords {
  uint32_t w[2][4], scales[2][2][2];  // [tile], of scales also [group of 32][row g or g + 8]

  /// words: of the unit and block; block: its place in the span.
  __device__ void load(const GemmArgs& a, const uint8_t* words, const uint8_t* scale, int block, int first, int lane) {
    Reader::template words<2>(words, first, lane, w);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t word = Reader::scale(scale, first + i, lane / 4, block);
#pragma unroll
      for (int j = 0; j < 4; j++) scales[i][j / 2][j % 2] = operand_scale(word, j / 2, j % 2, a.w.exponent);
    }
  }
  __device__ void decode(int step, uint32_t (&operand)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 2; i++) decode_scaled<Reader>(w[i][step], scales[i][step / 2], operand[i]);
  }
};

/// kUsed: tokens computed, a multiple of 16 and at least tile.count.
template <OperandReader Reader, int kTokens, int kUsed, bool kGated>
__device__ inline void wgmma_product(const GemmArgs& a, const TokenTile& tile, int row_tile, uint8_t* shared) {
  using Stage = WgmmaStage<Reader, kTokens>;
  const int consumer = threadIdx.x - wgmma_copiers, lane = consumer % 32;
  const int unit = consumer / 64, first = consumer / 32 % 2 * 2;
  uint64_t *full = reinterpret_cast<uint64_t*>(shared + Stage::barriers), *empty = full + Stage::count;
  const int blocks = a.w.k / unit_k;
  float d[2][kUsed / 2];
#pragma unroll
  for (int u = 0; u < 2; u++)
#pragma unroll
    for (int i = 0; i < kUsed / 2; i++) d[u][i] = 0;

  WgmmaWords<Reader> words;
  uint32_t operand[2][2][4];
  int slot = 0, parity = 0, place = 0;  // of the block in its span
  const auto wait_and_load = [&] {
    if (place == 0) {
      barrier_wait(&full[slot], parity);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // tokens came by cp.async, wgmma reads them
    }
    const uint8_t* stage = shared + slot * Stage::bytes;
    words.load(a, stage + (unit * Stage::span + place) * unit_bytes, stage + Stage::scales + unit * 256, place, first,
               lane);
  };
  wait_and_load();
  words.decode(0, operand[0]);
  for (int block = 0; block < blocks; block++) {
    const uint64_t b = token_descriptor(shared + slot * Stage::bytes + Stage::tokens + place * kTokens * 128);
    uint64_t* const done = &empty[slot];
    const bool last_of_span = place == Stage::span - 1;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      wgmma_fence();
#pragma unroll
      for (int u = 0; u < 2; u++) Wgmma<kUsed>::multiply(d[u], operand[s % 2][u], b + s * descriptor_step);
      wgmma_commit();
      wgmma_wait<1>();
      if (s == 3 && block + 1 < blocks) {
        if (++place == Stage::span) {
          place = 0;
          if (++slot == Stage::count) {
            slot = 0;
            parity ^= 1;
          }
        }
        wait_and_load();
      }
      words.decode((s + 1) % 4, operand[(s + 1) % 2]);
    }
    wgmma_wait<0>();
    if (lane == 0 && last_of_span) barrier_arrive(done);
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

/// Registers of a thread, with kBlocks blocks on a multiprocessor. The copying warpgroup releases registers that the
/// multiplying warpgroups take over.
template <int kBlocks>
struct WgmmaRegisters {
  static constexpr int at_launch = kBlocks == 2 ? 80 : 168;  // the most that are left for wgmma_threads each, by eights
  static constexpr int copier = kBlocks == 2 ? 48 : 56, consumer = kBlocks == 2 ? 96 : 224;
  static_assert(at_launch == 65536 / (wgmma_threads * kBlocks) / 8 * 8);
  static_assert(copier * wgmma_copiers + consumer * wgmma_consumers <= at_launch * wgmma_threads);
};

template <bool kCopies, int kBlocks>
__device__ inline void set_registers() {
  using Registers = WgmmaRegisters<kBlocks>;
  if constexpr (kCopies)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers::copier));
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers::consumer));
}

template <OperandReader Reader, int kTokens, bool kGated>
__global__ void __launch_bounds__(wgmma_threads, WgmmaStage<Reader, kTokens>::blocks_per_sm)
    wgmma_kernel(const GemmArgs a) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Stage = WgmmaStage<Reader, kTokens>;
  if (kGated) wait_for_previous();  // the second product's token tiles are older than the kernel before it
  start_next();
  if (int(blockIdx.y) >= *a.tile_count) return;
  const TokenTile tile = a.tiles[blockIdx.y];
  if (threadIdx.x == 0) {
    uint64_t* barriers = reinterpret_cast<uint64_t*>(shared + Stage::barriers);
    for (int i = 0; i < Stage::count; i++) {
      barrier_init(&barriers[i], wgmma_copiers);
      barrier_init(&barriers[Stage::count + i], wgmma_consumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int row_tile = blockIdx.x;
  if (threadIdx.x < wgmma_copiers) {
    set_registers<true, Stage::blocks_per_sm>();
    wgmma_copy<Reader, kTokens, kGated>(a, tile, row_tile, shared);
  } else {
    set_registers<false, Stage::blocks_per_sm>();
    if constexpr (kTokens == 128) {
      if (tile.count <= 80)
        wgmma_product<Reader, kTokens, 80, kGated>(a, tile, row_tile, shared);
      else if (tile.count <= 96)
        wgmma_product<Reader, kTokens, 96, kGated>(a, tile, row_tile, shared);
      else if (tile.count <= 112)
        wgmma_product<Reader, kTokens, 112, kGated>(a, tile, row_tile, shared);
      else
        wgmma_product<Reader, kTokens, 128, kGated>(a, tile, row_tile, shared);
    } else {
      if (tile.count <= kTokens / 2)
        wgmma_product<Reader, kTokens, kTokens / 2, kGated>(a, tile, row_tile, shared);
      else
        wgmma_product<Reader, kTokens, kTokens, kGated>(a, tile, row_tile, shared);
    }
  }
}

}  // namespace mxfp4
