// Few tokens per expert: the weights are streamed once, as fast as memory gives them.
//
// A block of four or eight warps takes 128 weight rows (two units) and up to kTokens tokens of one expert. The warps
// divide k into parts, each through its own rings in shared memory, so the main loop has no block barrier. The
// four partial sums are added in order at the end.
#pragma once

#include "kernels/moe/cuda/moe_gemm.cuh"

namespace mxfp4 {

/// A step is 4096 bytes of words and their scales: both units for one block of 64 codes. If blocks come in spans of
/// two, a step is one unit for both blocks, [block][2048], and tokens are copied once per span.
template <OperandReader Reader, int kTokens, int kWarps>
struct StreamRing {
  static constexpr int span = Reader::span, units = 2 / span;  // of a step
  static constexpr int step_bytes = 2 * unit_bytes + units * Reader::scale_bytes;
  static constexpr int token_bytes = span * kTokens * 128;
  // Blocks that share a multiprocessor, and the steps and tokens of a warp's rings that then fit.
  static constexpr int blocks = kTokens > 8 || kWarps > 4 ? 2 : 3;
  static constexpr int steps = kWarps > 4 ? 2 : kTokens > 8 && span == 1 ? 4 : 3;
  static constexpr int token_slots = span > 1 ? 2 : steps;
  static constexpr int bytes = steps * step_bytes + token_slots * token_bytes;  // of one warp
  static constexpr int shared = kWarps * bytes;
};

/// The copies of one lane, along k from span `first` on. Rows of tokens that the tile does not have are not written:
/// results from these rows are columns that no one reads.
template <OperandReader Reader, int kTokens, int kWarps, bool kGated>
struct StreamCopy {
  using Ring = StreamRing<Reader, kTokens, kWarps>;
  const GemmArgs& a;
  const uint8_t *words[2], *scales;
  const __nv_bfloat16* x;
  int row[2], token[kTokens / 4], lane, tokens;
  bool copies_scales[2];  // in the step of unit 0, of unit 1

  __device__ StreamCopy(const GemmArgs& args, const TokenTile& tile, int row_tile, int lane, int first)
      : a(args), x(args.x + first * (Ring::span * unit_k)), lane(lane), tokens(tile.count) {
    constexpr int pieces = Reader::scale_pieces;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      row[u] = inside(a, unit_row<2, kGated>(a, row_tile, u));
      words[u] = a.w.words + int64_t(tile.expert) * a.w.word_stride + Reader::source(a.w, row[u], lane) +
                 int64_t(first) * a.w.k_step;
      copies_scales[u] = lane < 2 * pieces && (Ring::units == 2 || lane / pieces == u);
    }
    scales = a.w.scales + int64_t(tile.expert) * a.w.scale_stride + int64_t(first) * a.w.scale_step +
             Reader::scale_source(a.w, lane / pieces % 2 ? row[1] : row[0], lane % pieces);
  }
  __device__ void find_tokens(const TokenTile& tile) {
#pragma unroll
    for (int i = 0; i < kTokens / 4; i++) {
      const int position = tile.first + min(lane / 8 + 4 * i, tokens - 1);
      token[i] = (a.rows ? a.rows[position] : position) * a.pitch + lane % 8 * 8;
    }
  }

  /// first: the step's first unit, a constant once loops are unrolled.
  __device__ void copy_words(uint8_t* step, int first) {
#pragma unroll
    for (int u = first; u < first + Ring::units; u++) {
#pragma unroll
      for (int c = 0; c < 4 * Ring::span; c++)
        copy_weight_piece(step + (u - first) * unit_bytes + Reader::target(c, lane),
                          words[u] + Reader::chunk_step(a.w, row[u], c));
      words[u] += a.w.k_step;
    }
    const int target = Ring::units == 2 ? lane : lane % Reader::scale_pieces;
    if (copies_scales[first]) {
      copy_weight_piece(step + 2 * unit_bytes + target * 16, scales);
      scales += a.w.scale_step;
    }
  }
  __device__ void copy_tokens(uint8_t* to) {
#pragma unroll
    for (int b = 0; b < Ring::span; b++)
#pragma unroll
      for (int i = 0; i < kTokens / 4; i++)
        if (lane / 8 + 4 * i < tokens)
          copy_token_piece(to + b * kTokens * 128 + token_offset(lane / 8 + 4 * i, lane % 8),
                           x + token[i] + b * unit_k);
    x += Ring::span * unit_k;
  }
};

/// kUnits units of one block: 64 rows x 64 codes x kTokens each. block: its place in the span.
template <OperandReader Reader, int kTokens, int kUnits>
__device__ inline void stream_multiply(const uint8_t* words, const uint8_t* scales, const uint8_t* tokens, int block,
                                       int exponent, int lane, float (*d)[4][kTokens / 8][4]) {
  uint32_t b[2][kTokens / 8][4];
#pragma unroll
  for (int half = 0; half < 2; half++)
#pragma unroll
    for (int j = 0; j < kTokens / 8; j++) load_tokens(b[half][j], tokens, j * 8, half, lane);
#pragma unroll
  for (int u = 0; u < kUnits; u++) {
    uint32_t w[4][4];
    Reader::template words<4>(words + u * unit_bytes, 0, lane, w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const LaneScales scale(Reader::scale(scales + u * Reader::scale_bytes, i, lane / 4, block), exponent);
#pragma unroll
      for (int s = 0; s < 4; s++) {
        uint32_t operand[4];
        decode_scaled<Reader>(w[i][s], scale.s[s / 2], operand);
#pragma unroll
        for (int j = 0; j < kTokens / 8; j++)
          multiply(d[u][i][j], operand, b[s / 2][j][s % 2 * 2], b[s / 2][j][s % 2 * 2 + 1]);
      }
    }
  }
}

/// Grid: row tiles x an upper bound of the token tiles.
template <OperandReader Reader, int kTokens, int kWarps, bool kGated>
__global__ void __launch_bounds__(kWarps * 32, StreamRing<Reader, kTokens, kWarps>::blocks)
    stream_kernel(const GemmArgs a) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Ring = StreamRing<Reader, kTokens, kWarps>;
  constexpr int span = Ring::span, ahead = Ring::steps - 1;
  if (kGated) wait_for_previous();  // the second product's token tiles are older than the kernel before it
  start_next();
  if (int(blockIdx.y) >= *a.tile_count) return;
  const TokenTile tile = a.tiles[blockIdx.y];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_tile = blockIdx.x;
  const int spans = a.w.k / (span * unit_k), part = (spans + kWarps - 1) / kWarps;
  const int begin = min(warp * part, spans), mine = min(part, spans - begin), steps = mine * span;
  StreamCopy<Reader, kTokens, kWarps, kGated> copy(a, tile, row_tile, lane, begin);
  uint8_t* const ring = shared + warp * Ring::bytes;
  uint8_t* const token_ring = ring + Ring::steps * Ring::step_bytes;

  float d[2][4][kTokens / 8][4] = {};
#pragma unroll
  for (int i = 0; i < ahead; i++)
    if (i < steps) copy.copy_words(ring + i * Ring::step_bytes, i % span);
  if (!kGated) wait_for_previous();
  copy.find_tokens(tile);
#pragma unroll
  for (int i = 0; i < ahead; i++) {
    if (i % span == 0 && i < steps) copy.copy_tokens(token_ring + i / span * Ring::token_bytes);
    commit_copies();
  }
  // Slots of the rings: of this step, of the step to fetch; of this span's tokens, of those to fetch.
  int from = 0, to = ahead, tokens_from = 0, tokens_to = (ahead + span - 1) / span % Ring::token_slots;
  const auto after = [](int slot, int slots) { return slot + 1 == slots ? 0 : slot + 1; };
  for (int i = 0; i < steps; i += span) {
#pragma unroll
    for (int first = 0; first < span; first++) {  // a step's first unit
      wait_copies<ahead - 1>();
      __syncwarp();
      if (i + first + ahead < steps) {
        if ((first + ahead) % span == 0) {
          copy.copy_words(ring + to * Ring::step_bytes, 0);
          copy.copy_tokens(token_ring + tokens_to * Ring::token_bytes);
          tokens_to = after(tokens_to, Ring::token_slots);
        } else {
          copy.copy_words(ring + to * Ring::step_bytes, 1);
        }
      }
      commit_copies();
      const uint8_t *step = ring + from * Ring::step_bytes, *tokens = token_ring + tokens_from * Ring::token_bytes;
#pragma unroll
      for (int block = 0; block < span; block++)
        stream_multiply<Reader, kTokens, Ring::units>(step + block * unit_bytes, step + 2 * unit_bytes,
                                                      tokens + block * kTokens * 128, block, a.w.exponent, lane,
                                                      d + first);
      from = after(from, Ring::steps);
      to = after(to, Ring::steps);
    }
    tokens_from = after(tokens_from, Ring::token_slots);
  }

  wait_copies<0>();
  __syncthreads();
  float* sums = reinterpret_cast<float*>(shared);
  constexpr int slab = kTokens * sum_pitch<2>;
  static_assert(kWarps * slab * 4 <= Ring::shared);
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < kTokens / 8; j++) put_fragment<2>(sums + warp * slab, i * 16, j * 8, lane, d[i / 4][i % 4][j]);
  __syncthreads();
  finish_tile<2, kGated, kWarps>(a, tile, row_tile, sums, slab, threadIdx.x, kWarps * 32);
}

}  // namespace mxfp4
