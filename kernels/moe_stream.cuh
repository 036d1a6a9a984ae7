// Few tokens per expert: the weights are streamed once, as fast as memory gives them.
//
// A block of four warps takes 128 weight rows (two units) and up to kTokens tokens of one expert. The warps divide k
// into four parts, each through its own ring of stages in shared memory, so the main loop has no block barrier. The four partial sums are added in order at the end.
#pragma once

#include "kernels/moe_gemm.cuh"

namespace mxfp4 {

template <class Fragment, int kTokens>
struct StreamStage {
  static constexpr int scales = 2 * unit_bytes, tokens = scales + 2 * Fragment::scale_bytes;
  static constexpr int bytes = tokens + kTokens * 128;
};

inline constexpr int stream_warps = 4;
/// Blocks that share a multiprocessor, and the stages of a warp's ring that then fit.
template <int kTokens>
inline constexpr int stream_blocks = kTokens > 8 ? 2 : 3;
template <int kTokens>
inline constexpr int stream_stages = kTokens > 8 ? 4 : 3;

template <class Fragment, int kTokens>
MXFP4_HD constexpr int stream_shared_bytes() {
  return stream_warps * stream_stages<kTokens> * StreamStage<Fragment, kTokens>::bytes;
}

/// What one lane copies of every stage, walking along k from block `block` on.
template <class Fragment, int kTokens, bool kGated>
struct StreamCopy {
  using Stage = StreamStage<Fragment, kTokens>;
  const GemmArgs& a;
  const uint8_t *words[2], *scales;
  int row[2], x[kTokens / 4], scale_target, lane, tokens, words_block, tokens_block;

  __device__ StreamCopy(const GemmArgs& args, const TokenTile& tile, int row_tile, int lane, int block)
      : a(args), lane(lane), tokens(tile.count), words_block(block), tokens_block(block) {
    constexpr int pieces = Fragment::scale_pieces;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      row[u] = inside(a, unit_row<2, kGated>(a, row_tile, u));
      words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Fragment::source(a.w, row[u], lane) +
                 int64_t(block) * a.w.k_step;
    }
    const int u = lane / pieces % 2, scale_row = u ? row[1] : row[0];
    scales = a.w.scales + int64_t(tile.expert) * a.w.scale_stride +
             Fragment::scale_source(a.w, scale_row, lane % pieces);
    scale_target = Stage::scales + u * Fragment::scale_bytes + lane % pieces * 16;
  }
  __device__ void find_tokens(const TokenTile& tile) {
#pragma unroll
    for (int i = 0; i < kTokens / 4; i++) {
      const int token = lane / 8 + 4 * i, position = tile.first + token;
      x[i] = token < tokens ? (a.rows ? a.rows[position] : position) * a.pitch + lane % 8 * 8 : 0;
    }
  }

  __device__ void copy_words(uint8_t* stage) {
#pragma unroll
    for (int u = 0; u < 2; u++) {
#pragma unroll
      for (int c = 0; c < 4; c++)
        copy16(stage + u * unit_bytes + c * 512 + Fragment::target(lane),
               words[u] + Fragment::chunk_step(a.w, row[u], c));
      words[u] += a.w.k_step;
    }
    if (lane < 2 * Fragment::scale_pieces)
      copy16(stage + scale_target, scales + int64_t(words_block >> Fragment::scale_shift) * a.w.scale_step);
    words_block++;
  }
  __device__ void copy_tokens(uint8_t* stage) {
#pragma unroll
    for (int i = 0; i < kTokens / 4; i++)
      copy16_if(stage + Stage::tokens + token_offset(lane / 8 + 4 * i, lane % 8), a.x + x[i] + tokens_block * 64,
                lane / 8 + 4 * i < tokens);
    tokens_block++;
  }
};

/// One k block: 128 rows x 64 codes x kTokens.
template <class Fragment, int kTokens>
__device__ inline void stream_multiply(const GemmArgs& a, const uint8_t* stage, int block, int lane,
                                       float (&d)[8][kTokens / 8][4]) {
  using Stage = StreamStage<Fragment, kTokens>;
  uint32_t b[2][kTokens / 8][4];
#pragma unroll
  for (int half = 0; half < 2; half++)
#pragma unroll
    for (int j = 0; j < kTokens / 8; j++) load_tokens(b[half][j], stage + Stage::tokens, j * 8, half, lane);
#pragma unroll
  for (int u = 0; u < 2; u++) {
    uint32_t w[4][4];
    Fragment::template words<4>(stage + u * unit_bytes, 0, lane, w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const LaneScales scales(Fragment::scale(stage + Stage::scales + u * Fragment::scale_bytes, i, lane / 4, block),
                              a.w.exponent);
#pragma unroll
      for (int s = 0; s < 4; s++) {
        uint32_t operand[4];
        decode_scaled<Fragment>(w[i][s], scales.s[s / 2], operand);
#pragma unroll
        for (int j = 0; j < kTokens / 8; j++)
          multiply(d[u * 4 + i][j], operand, b[s / 2][j][s % 2 * 2], b[s / 2][j][s % 2 * 2 + 1]);
      }
    }
  }
}

/// Grid: row tiles x an upper bound of the token tiles.
template <class Fragment, int kTokens, bool kGated>
__global__ void __launch_bounds__(stream_warps * 32, stream_blocks<kTokens>) stream_kernel(const GemmArgs a) {
  extern __shared__ __align__(1024) uint8_t shared[];
  constexpr int stages = stream_stages<kTokens>, stage_bytes = StreamStage<Fragment, kTokens>::bytes;
  if (kGated) wait_for_previous();  // the second product's token tiles are older than the kernel before it
  start_next();
  if (int(blockIdx.y) >= *a.tile_count) return;
  const TokenTile tile = a.tiles[blockIdx.y];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_tile = blockIdx.x;
  const int blocks = a.w.k / unit_k, part = (blocks + stream_warps - 1) / stream_warps;
  const int begin = min(warp * part, blocks), mine = min(part, blocks - begin);
  StreamCopy<Fragment, kTokens, kGated> copy(a, tile, row_tile, lane, begin);
  uint8_t* ring = shared + warp * stages * stage_bytes;

  float d[8][kTokens / 8][4] = {};
  for (int i = 0; i < min(stages - 1, mine); i++) copy.copy_words(ring + i * stage_bytes);
  if (!kGated) wait_for_previous();
  copy.find_tokens(tile);
  for (int i = 0; i < stages - 1; i++) {
    if (i < mine) copy.copy_tokens(ring + i * stage_bytes);
    commit_copies();
  }
  int from = 0, to = stages - 1;  // stages
  for (int i = 0; i < mine; i++) {
    wait_copies<stages - 2>();
    __syncwarp();
    if (i + stages - 1 < mine) {
      copy.copy_words(ring + to * stage_bytes);
      copy.copy_tokens(ring + to * stage_bytes);
    }
    commit_copies();
    stream_multiply<Fragment, kTokens>(a, ring + from * stage_bytes, begin + i, lane, d);
    from = from + 1 == stages ? 0 : from + 1, to = to + 1 == stages ? 0 : to + 1;
  }

  wait_copies<0>();
  __syncthreads();
  float* sums = reinterpret_cast<float*>(shared);
  constexpr int slab = kTokens * sum_pitch<2>;
  static_assert(stream_warps * slab * 4 <= stream_shared_bytes<Fragment, kTokens>());
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < kTokens / 8; j++) put_fragment<2>(sums + warp * slab, i * 16, j * 8, lane, d[i][j]);
  __syncthreads();
  finish_tile<2, kGated, stream_warps>(a, tile, row_tile, sums, slab, threadIdx.x, stream_warps * 32);
}

}  // namespace mxfp4
