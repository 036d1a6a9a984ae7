// Few tokens per expert: the weights are streamed once, as fast as memory gives them.
//
// A block of four warps takes 128 weight rows (two units) and up to kTokens tokens of one expert. The warps divide k
// into four parts, each through its own ring of stages in shared memory, so the main loop has no block barrier. The
// four partial sums are added in order at the end.
#pragma once

#include "kernels/moe_gemm.cuh"

namespace mxfp4 {

/// One span of two units, their scales and the tokens: [unit][block of the span], [unit], [block of the span].
template <class Fragment, int kTokens>
struct StreamStage {
  static constexpr int span = Fragment::span;
  static constexpr int scales = 2 * span * unit_bytes, tokens = scales + 2 * Fragment::scale_bytes;
  static constexpr int bytes = tokens + span * kTokens * 128;
  // Blocks that share a multiprocessor, and the stages of a warp's ring that then fit.
  static constexpr int blocks = kTokens > 8 || span > 1 ? 2 : 3;
  static constexpr int count = span > 1 ? 2 : kTokens > 8 ? 4 : 3;
};

inline constexpr int stream_warps = 4;

template <class Fragment, int kTokens>
MXFP4_HD constexpr int stream_shared_bytes() {
  return stream_warps * StreamStage<Fragment, kTokens>::count * StreamStage<Fragment, kTokens>::bytes;
}

/// What one lane copies of every stage, walking along k from span `first` on. Rows of tokens that the tile does not
/// have stay as they are: whatever is computed from them is a column that no one reads.
template <class Fragment, int kTokens, bool kGated>
struct StreamCopy {
  using Stage = StreamStage<Fragment, kTokens>;
  const GemmArgs& a;
  const uint8_t *words[2], *scales;
  const __nv_bfloat16* x;
  int row[2], token[kTokens / 4], scale_target, lane, tokens;

  __device__ StreamCopy(const GemmArgs& args, const TokenTile& tile, int row_tile, int lane, int first)
      : a(args), x(args.x + first * (Stage::span * unit_k)), lane(lane), tokens(tile.count) {
    constexpr int pieces = Fragment::scale_pieces;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      row[u] = inside(a, unit_row<2, kGated>(a, row_tile, u));
      words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Fragment::source(a.w, row[u], lane) +
                 int64_t(first) * a.w.k_step;
    }
    const int u = lane / pieces % 2, scale_row = u ? row[1] : row[0];
    scales = a.w.scales + int64_t(tile.expert) * a.w.scale_stride +
             Fragment::scale_source(a.w, scale_row, lane % pieces) + int64_t(first) * a.w.scale_step;
    scale_target = Stage::scales + u * Fragment::scale_bytes + lane % pieces * 16;
  }
  __device__ void find_tokens(const TokenTile& tile) {
#pragma unroll
    for (int i = 0; i < kTokens / 4; i++) {
      const int position = tile.first + min(lane / 8 + 4 * i, tokens - 1);
      token[i] = (a.rows ? a.rows[position] : position) * a.pitch + lane % 8 * 8;
    }
  }

  __device__ void copy_words(uint8_t* stage) {
#pragma unroll
    for (int u = 0; u < 2; u++) {
#pragma unroll
      for (int c = 0; c < 4 * Stage::span; c++)
        copy_weight_piece(stage + u * Stage::span * unit_bytes + Fragment::target(c, lane),
                          words[u] + Fragment::chunk_step(a.w, row[u], c));
      words[u] += a.w.k_step;
    }
    if (lane < 2 * Fragment::scale_pieces) copy_weight_piece(stage + scale_target, scales);
    scales += a.w.scale_step;
  }
  __device__ void copy_tokens(uint8_t* stage) {
#pragma unroll
    for (int b = 0; b < Stage::span; b++)
#pragma unroll
      for (int i = 0; i < kTokens / 4; i++)
        if (lane / 8 + 4 * i < tokens)
          copy_token_piece(stage + Stage::tokens + b * kTokens * 128 + token_offset(lane / 8 + 4 * i, lane % 8),
                           x + token[i] + b * unit_k);
    x += Stage::span * unit_k;
  }
};

/// One block of a span: 128 rows x 64 codes x kTokens.
template <class Fragment, int kTokens>
__device__ inline void stream_multiply(const GemmArgs& a, const uint8_t* stage, int block, int lane,
                                       float (&d)[8][kTokens / 8][4]) {
  using Stage = StreamStage<Fragment, kTokens>;
  const uint8_t* tokens = stage + Stage::tokens + block * kTokens * 128;
  uint32_t b[2][kTokens / 8][4];
#pragma unroll
  for (int half = 0; half < 2; half++)
#pragma unroll
    for (int j = 0; j < kTokens / 8; j++) load_tokens(b[half][j], tokens, j * 8, half, lane);
#pragma unroll
  for (int u = 0; u < 2; u++) {
    uint32_t w[4][4];
    Fragment::template words<4>(stage + (u * Stage::span + block) * unit_bytes, 0, lane, w);
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
__global__ void __launch_bounds__(stream_warps * 32, StreamStage<Fragment, kTokens>::blocks)
    stream_kernel(const GemmArgs a) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Stage = StreamStage<Fragment, kTokens>;
  constexpr int stages = Stage::count, stage_bytes = Stage::bytes;
  if (kGated) wait_for_previous();  // the second product's token tiles are older than the kernel before it
  start_next();
  if (int(blockIdx.y) >= *a.tile_count) return;
  const TokenTile tile = a.tiles[blockIdx.y];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_tile = blockIdx.x;
  const int spans = a.w.k / (Stage::span * unit_k), part = (spans + stream_warps - 1) / stream_warps;
  const int begin = min(warp * part, spans), mine = min(part, spans - begin);
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
#pragma unroll
    for (int b = 0; b < Stage::span; b++) stream_multiply<Fragment, kTokens>(a, ring + from * stage_bytes, b, lane, d);
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
