// Few tokens per expert: the weights are streamed once, as fast as memory gives them.
//
// A block of four warps takes 128 weight rows (two units) and up to kTokens tokens of one expert. The warps divide k:
// warp w takes the 64-code blocks w, w + 4, ..., each through its own ring of stages in shared memory, so the main
// loop has no block barrier. The four partial sums are added in order at the end.
#pragma once

#include "kernels/moe_gemm.cuh"

namespace mxfp4 {

template <class Fragment, int kTokens>
struct StreamStage {
  static constexpr int scales = 2 * unit_bytes, tokens = scales + 2 * Fragment::scale_bytes;
  static constexpr int bytes = tokens + kTokens * 128;
};

inline constexpr int stream_warps = 4;
template <int kTokens>
inline constexpr int stream_stages = kTokens > 16 ? 3 : 4;

template <class Fragment, int kTokens>
MXFP4_HD constexpr int stream_shared_bytes() {
  return stream_warps * stream_stages<kTokens> * StreamStage<Fragment, kTokens>::bytes;
}

/// What one lane copies of every stage: addresses at k block 0.
template <class Fragment, int kTokens, bool kGated>
struct StreamCopy {
  using Stage = StreamStage<Fragment, kTokens>;
  const uint8_t *words[2], *scales;
  int row[2], x[kTokens / 4], scale_target;

  __device__ StreamCopy(const GemmArgs& a, const TokenTile& tile, int row_tile, int lane) {
    const uint8_t* expert_scales = a.w.scales + int64_t(tile.expert) * a.w.scale_stride;
    constexpr int pieces = Fragment::scale_pieces;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      row[u] = inside(a, unit_row<2, kGated>(a, row_tile, u));
      words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Fragment::source(a.w, row[u], lane);
    }
    const int u = lane / pieces % 2, scale_row = u ? row[1] : row[0];
    scales = expert_scales + Fragment::scale_source(a.w, scale_row, lane % pieces);
    scale_target = Stage::scales + u * Fragment::scale_bytes + lane % pieces * 16;
#pragma unroll
    for (int i = 0; i < kTokens / 4; i++) {
      const int token = lane / 8 + 4 * i, position = tile.first + token;
      x[i] = token >= tile.count ? -1 : (a.rows ? a.rows[position] : position) * a.pitch + lane % 8 * 8;
    }
  }

  __device__ void issue(const GemmArgs& a, uint8_t* stage, int block, int lane) const {
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
      for (int c = 0; c < 4; c++)
        copy16(stage + u * unit_bytes + c * 512 + Fragment::target(lane),
               words[u] + int64_t(block) * a.w.k_step + Fragment::chunk_step(a.w, row[u], c));
    if (lane < 2 * Fragment::scale_pieces)
      copy16(stage + scale_target, scales + int64_t(block >> Fragment::scale_shift) * a.w.scale_step);
#pragma unroll
    for (int i = 0; i < kTokens / 4; i++)
      copy16_if(stage + Stage::tokens + token_offset(lane / 8 + 4 * i, lane % 8), a.x + max(x[i], 0) + block * 64,
                x[i] >= 0);
  }
};

/// One k block: 128 rows x 64 codes x kTokens.
template <class Fragment, int kTokens>
__device__ inline void stream_multiply(const GemmArgs& a, const uint8_t* stage, int block, int lane,
                                       float (&d)[8][kTokens / 8][4]) {
  using Stage = StreamStage<Fragment, kTokens>;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint32_t b[kTokens / 8][4];
#pragma unroll
    for (int j = 0; j < kTokens / 8; j++) load_tokens(b[j], stage + Stage::tokens, j * 8, half, lane);
#pragma unroll
    for (int u = 0; u < 2; u++) {
      uint32_t w[4][4];
      Fragment::template words<4>(stage + u * unit_bytes, 0, lane, w);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const LaneScales scales(Fragment::scale(stage + Stage::scales + u * Fragment::scale_bytes, i, lane / 4, block),
                                a.w.exponent);
#pragma unroll
        for (int s = 0; s < 2; s++) {
          uint32_t operand[4];
          decode_scaled<Fragment>(w[i][half * 2 + s], scales.s[half], operand);
#pragma unroll
          for (int j = 0; j < kTokens / 8; j++) multiply(d[u * 4 + i][j], operand, b[j][2 * s], b[j][2 * s + 1]);
        }
      }
    }
  }
}

/// Grid: row tiles x an upper bound of the token tiles.
template <class Fragment, int kTokens, bool kGated>
__global__ void __launch_bounds__(stream_warps * 32, kTokens > 16 ? 1 : 2) stream_kernel(const GemmArgs a) {
  extern __shared__ __align__(1024) uint8_t shared[];
  constexpr int stages = stream_stages<kTokens>, stage_bytes = StreamStage<Fragment, kTokens>::bytes;
  if (int(blockIdx.y) >= *a.tile_count) return;
  const TokenTile tile = a.tiles[blockIdx.y];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_tile = blockIdx.x;
  const StreamCopy<Fragment, kTokens, kGated> copy(a, tile, row_tile, lane);
  uint8_t* ring = shared + warp * stages * stage_bytes;
  const int blocks = a.w.k / unit_k, mine = (blocks - warp + stream_warps - 1) / stream_warps;

  const auto issue = [&](int i) {
    if (i < mine) copy.issue(a, ring + i % stages * stage_bytes, warp + i * stream_warps, lane);
    commit_copies();
  };
  float d[8][kTokens / 8][4] = {};
  for (int i = 0; i < stages - 1; i++) issue(i);
  for (int i = 0; i < mine; i++) {
    wait_copies<stages - 2>();
    __syncwarp();
    issue(i + stages - 1);
    stream_multiply<Fragment, kTokens>(a, ring + i % stages * stage_bytes, warp + i * stream_warps, lane, d);
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
