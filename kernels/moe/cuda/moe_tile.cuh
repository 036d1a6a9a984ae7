// Many tokens per expert with mma.sync (SM80 and later).
//
// A block of four warps takes 128 weight rows (two units) and up to kTokens tokens. It walks k in blocks of 64 codes
// through a ring of stages that all its warps share. Warp w decodes rows 32w..32w+31 and no other warp does: one
// decoded operand serves all tokens.
#pragma once

#include "kernels/moe/cuda/moe_gemm.cuh"

namespace mxfp4 {

template <OperandReader Reader, int kTokens>
struct TileStage {
  static constexpr int scales = 2 * unit_bytes, tokens = scales + 512;
  static constexpr int bytes = tokens + kTokens * 128;
};

inline constexpr int tile_threads = 128;
template <int kTokens>
inline constexpr int tile_stages = kTokens >= 128 ? 4 : 5;

template <OperandReader Reader, int kTokens>
MXFP4_HD constexpr int tile_shared_bytes() {
  constexpr int ring = tile_stages<kTokens> * TileStage<Reader, kTokens>::bytes;
  constexpr int sums = kTokens * sum_pitch<2> * 4;
  return ring > sums ? ring : sums;
}

template <OperandReader Reader, int kTokens, bool kGated>
struct TileCopy {
  using Stage = TileStage<Reader, kTokens>;
  static_assert(Reader::span == 1);
  const uint8_t *words[2], *scales;
  int row[2], x[kTokens / 16], scale_target, warp, lane, tokens;

  __device__ TileCopy(const GemmArgs& a, const TokenTile& tile, int row_tile)
      : warp(threadIdx.x / 32), lane(threadIdx.x % 32), tokens(tile.count) {
    constexpr int pieces = Reader::scale_pieces;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      row[u] = inside(a, unit_row<2, kGated>(a, row_tile, u));
      words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Reader::source(a.w, row[u], lane) +
                 Reader::chunk_step(a.w, row[u], warp);
    }
    const int u = lane / pieces % 2, scale_row = u ? row[1] : row[0];
    scales = a.w.scales + int64_t(tile.expert) * a.w.scale_stride + Reader::scale_source(a.w, scale_row, lane % pieces);
    scale_target = Stage::scales + u * Reader::scale_bytes + lane % pieces * 16;
#pragma unroll
    for (int i = 0; i < kTokens / 16; i++) {
      const int position = tile.first + min(int(threadIdx.x / 8) + 16 * i, tokens - 1);
      x[i] = (a.rows ? a.rows[position] : position) * a.pitch + lane % 8 * 8;
    }
  }

  template <int kUsed>
  __device__ void issue(const GemmArgs& a, uint8_t* stage, int block) const {
#pragma unroll
    for (int u = 0; u < 2; u++)
      copy_weight_piece(stage + u * unit_bytes + Reader::target(warp, lane), words[u] + int64_t(block) * a.w.k_step);
    if (threadIdx.x < 2 * Reader::scale_pieces)
      copy_weight_piece(stage + scale_target, scales + int64_t(block) * a.w.scale_step);
#pragma unroll
    for (int i = 0; i < (kUsed + 15) / 16; i++)
      if (threadIdx.x / 8 + 16 * i < tokens)
        copy_token_piece(stage + Stage::tokens + token_offset(threadIdx.x / 8, lane % 8) + i * 2048,
                         a.x + x[i] + block * 64);
  }
};

/// kUsed: tokens computed, a multiple of 8 and at least tile.count.
template <OperandReader Reader, int kTokens, int kUsed, bool kGated>
__device__ inline void tile_product(const GemmArgs& a, const TokenTile& tile, int row_tile, uint8_t* shared) {
  using Stage = TileStage<Reader, kTokens>;
  constexpr int stages = tile_stages<kTokens>;
  const int lane = threadIdx.x % 32, unit = threadIdx.x / 64, first = threadIdx.x / 32 % 2 * 2;
  const TileCopy<Reader, kTokens, kGated> copy(a, tile, row_tile);
  const int blocks = a.w.k / unit_k;
  float d[2][kUsed / 8][4] = {};

  const auto issue = [&](int i) {
    if (i < blocks) copy.template issue<kUsed>(a, shared + i % stages * Stage::bytes, i);
    commit_copies();
  };
  for (int i = 0; i < stages - 1; i++) issue(i);
  for (int block = 0; block < blocks; block++) {
    wait_copies<stages - 2>();
    __syncthreads();
    issue(block + stages - 1);
    const uint8_t* stage = shared + block % stages * Stage::bytes;
    uint32_t w[2][4];
    Reader::template words<2>(stage + unit * unit_bytes, first, lane, w);
    const uint8_t* scale = stage + Stage::scales + unit * Reader::scale_bytes;
    const LaneScales scales[2] = {{Reader::scale(scale, first, lane / 4, block), a.w.exponent},
                                  {Reader::scale(scale, first + 1, lane / 4, block), a.w.exponent}};
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t operand[2][2][4];
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int s = 0; s < 2; s++) decode_scaled<Reader>(w[i][half * 2 + s], scales[i].s[half], operand[i][s]);
#pragma unroll
      for (int j = 0; j < kUsed / 8; j++) {
        uint32_t b[4];
        load_tokens(b, stage + Stage::tokens, j * 8, half, lane);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
          for (int i = 0; i < 2; i++) multiply(d[i][j], operand[i][s], b[2 * s], b[2 * s + 1]);
      }
    }
  }

  wait_copies<0>();
  __syncthreads();
  float* sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < kUsed / 8; j++) put_fragment<2>(sums, unit * 64 + (first + i) * 16, j * 8, lane, d[i][j]);
  __syncthreads();
  finish_tile<2, kGated, 1>(a, tile, row_tile, sums, 0, threadIdx.x, tile_threads);
}

template <OperandReader Reader, int kTokens, bool kGated>
__global__ void __launch_bounds__(tile_threads, kTokens > 64 ? 2 : 3) tile_kernel(const GemmArgs a) {
  extern __shared__ __align__(1024) uint8_t shared[];
  wait_for_previous();
  start_next();
  if (int(blockIdx.y) >= *a.tile_count) return;
  const TokenTile tile = a.tiles[blockIdx.y];
  if constexpr (kTokens == 128) {
    if (tile.count <= 64) return tile_product<Reader, kTokens, 64, kGated>(a, tile, blockIdx.x, shared);
    if (tile.count <= 80) return tile_product<Reader, kTokens, 80, kGated>(a, tile, blockIdx.x, shared);
    if (tile.count <= 96) return tile_product<Reader, kTokens, 96, kGated>(a, tile, blockIdx.x, shared);
    if (tile.count <= 112) return tile_product<Reader, kTokens, 112, kGated>(a, tile, blockIdx.x, shared);
  }
  if constexpr (kTokens == 64)
    if (tile.count <= 32) return tile_product<Reader, kTokens, 32, kGated>(a, tile, blockIdx.x, shared);
  tile_product<Reader, kTokens, kTokens, kGated>(a, tile, blockIdx.x, shared);
}

}  // namespace mxfp4
