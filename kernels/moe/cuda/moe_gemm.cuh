// Common parts of the grouped products of the MoE: their arguments, the geometry of a tile, the asynchronous copies of
// weights, scales and tokens, and the epilogue.
//
// out[token][n] = sum over k of w[expert][n][k] * x[token][k]. A block computes kUnits * 64 weight rows for the
// tokens of one TokenTile. Weights are the 16 rows of the matrix instruction, tokens its columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/moe/cuda/operand_readers.h"

namespace mxfp4 {

/// Sorted positions first..first+count-1 belong to `expert`.
struct TokenTile {
  int expert, first, count;
};

/// kernels/moe/moe.h has the formula. halves: gate and up are the two halves of w13, else they alternate.
struct GatedActivation {
  float alpha, beta, limit;
  bool halves, up_first;
};

struct GemmArgs {
  OperandMatrix w;
  const float* bias;       // [experts][n], or null
  const __nv_bfloat16* x;  // rows of `pitch` elements, zero from the matrix's k to the next multiple of 64
  int pitch;
  const int* rows;  // sorted position -> row of x; null: the position itself
  const TokenTile* tiles;
  const int* tile_count;
  void* out;  // [sorted position][out_pitch]: bf16 behind the activation, else fp32
  int out_pitch;
  GatedActivation act;
};

// ---- geometry ------------------------------------------------------------------------------------------------------

/// First row of unit u of row tile t. With halves, units 0..kUnits/2-1 are of the first half, the others of the second.
template <int kUnits, bool kGated>
__device__ inline int unit_row(const GemmArgs& a, int t, int u) {
  if (kGated && a.act.halves) {
    const int row = t * (kUnits * 32) + u % (kUnits / 2) * 64;
    return u < kUnits / 2 ? row : a.w.n / 2 + row;
  }
  return (t * kUnits + u) * 64;
}

/// A unit beyond the matrix is fetched from its first rows instead, and its results are dropped by the epilogue.
__device__ inline int inside(const GemmArgs& a, int row) { return row < a.w.n ? row : 0; }

// ---- kernels that overlap -------------------------------------------------------------------------------------------

/// From SM90 on a kernel of the forward starts while the one before it ends; this waits for its results.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel start once every block has come here.
__device__ inline void start_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- copies --------------------------------------------------------------------------------------------------------

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

/// For tokens, which are read by many blocks.
__device__ inline void copy_token_piece(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}
/// For weights, which are walked along k: the neighbourhood comes to L2 with the piece.
__device__ inline void copy_weight_piece(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}

/// A token row is 128 bytes (64 values) in shared memory; its 16-byte piece c is at place c ^ (r & 7). This avoids bank
/// conflicts of ldmatrix and is the 128-byte swizzle of wgmma.
__device__ inline int token_offset(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

// ---- matrix instruction --------------------------------------------------------------------------------------------

__device__ inline void load_matrix4(uint32_t (&r)[4], const uint8_t* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}

/// B operands of eight tokens from `row` on, for 32 codes: b[0], b[1] the first k16 step, b[2], b[3] the second.
__device__ inline void load_tokens(uint32_t (&b)[4], const uint8_t* tokens, int row, int half, int lane) {
  load_matrix4(b, tokens + token_offset(row + lane % 8, half * 4 + lane / 8));
}

__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t scaled(uint32_t pair, uint32_t scale) {
  const __nv_bfloat162 r = __hmul2(reinterpret_cast<__nv_bfloat162&>(pair), reinterpret_cast<__nv_bfloat162&>(scale));
  return reinterpret_cast<const uint32_t&>(r);
}

/// The four scales of a tile that a lane applies: [group][row g or g + 8].
struct LaneScales {
  uint32_t s[2][2];
  __device__ LaneScales(uint32_t word, int exponent) {
#pragma unroll
    for (int group = 0; group < 2; group++)
#pragma unroll
      for (int half = 0; half < 2; half++) s[group][half] = operand_scale(word, group, half, exponent);
  }
};

/// A operand of one k16 step, scaled.
template <OperandReader Reader>
__device__ inline void decode_scaled(uint32_t word, const uint32_t (&scale)[2], uint32_t (&a)[4]) {
  Reader::decode(word, a);
#pragma unroll
  for (int i = 0; i < 4; i++) a[i] = scaled(a[i], scale[i % 2]);
}

// ---- epilogue ------------------------------------------------------------------------------------------------------
// A thread computes its indices outside of its loops: inside they cost a quarter of the time at 8192 tokens.

/// Sums are collected as [slab][token][kUnits * 64 + 4] floats: the 4 keep a fragment's writes free of bank conflicts.
template <int kUnits>
inline constexpr int sum_pitch = kUnits * 64 + 4;

/// One 16 x 8 fragment: rows g, g + 8 from `row`, tokens 2t, 2t + 1 from `token`.
template <int kUnits>
__device__ inline void put_fragment(float* sums, int row, int token, int lane, const float* d) {
  float* p = sums + (token + lane % 4 * 2) * sum_pitch<kUnits> + row + lane / 4;
  p[0] = d[0];
  p[sum_pitch<kUnits>] = d[1];
  p[8] = d[2];
  p[sum_pitch<kUnits> + 8] = d[3];
}

/// NaN in gives NaN out, which fminf and fmaxf alone would drop.
__device__ inline float activate(const GatedActivation& act, float gate, float up) {
  const float g = fminf(gate, act.limit), u = fminf(fmaxf(up, -act.limit), act.limit);
  const float out = __fdividef(g, 1 + __expf(-act.alpha * g)) * (u + act.beta);
  return isnan(gate) || isnan(up) ? gate + up : out;
}

__device__ inline void store_pair(float* out, float a, float b) { *reinterpret_cast<float2*>(out) = {a, b}; }
__device__ inline void store_pair(__nv_bfloat16* out, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(out) = __floats2bfloat162_rn(a, b);
}

/// Two or four consecutive sums, slabs added in order.
template <int kSlabs, class Vector>
__device__ inline Vector add_slabs(const float* sums, int slab_floats) {
  Vector v = *reinterpret_cast<const Vector*>(sums);
#pragma unroll
  for (int s = 1; s < kSlabs; s++) {
    const Vector other = *reinterpret_cast<const Vector*>(sums + s * slab_floats);
    v.x += other.x;
    v.y += other.y;
    if constexpr (sizeof(Vector) == 16) v.z += other.z, v.w += other.w;
  }
  return v;
}

/// Adds kSlabs slabs in order, then the bias, applies the activation if kGated, and writes the tile's columns.
/// Each thread processes two columns and steps through the tokens.
template <int kUnits, bool kGated, int kSlabs>
__device__ inline void finish_tile(const GemmArgs& a, const TokenTile& tile, int row_tile, const float* sums,
                                   int slab_floats, int thread, int threads) {
  using Out = std::conditional_t<kGated, __nv_bfloat16, float>;
  constexpr int columns = kGated ? kUnits * 32 : kUnits * 64, pairs = columns / 2;
  const int n_out = kGated ? a.w.n / 2 : a.w.n, c = thread % pairs * 2, column = row_tile * columns + c;
  if (column >= n_out) return;
  const float post = __uint_as_float(uint32_t(253 - a.w.exponent) << 23);  // 2^(126 - exponent)
  const float* bias = a.bias ? a.bias + int64_t(tile.expert) * a.w.n : nullptr;
  const int step = threads / pairs;
  Out* out = static_cast<Out*>(a.out) + int64_t(tile.first + thread / pairs) * a.out_pitch + column;
  sums += thread / pairs * sum_pitch<kUnits>;

  if constexpr (kGated) {
    const bool halves = a.act.halves, up_first = a.act.up_first;
    // Rows of the first and second of gate and up: in the tile, and in the matrix.
    const int gate_row = up_first ? c + kUnits * 32 : c, up_row = up_first ? c : c + kUnits * 32;
    float gate_bias[2] = {}, up_bias[2] = {};
    for (int j = 0; j < 2 && bias; j++) {
      const int n = column + j, first = halves ? n : 2 * n, second = halves ? n_out + n : 2 * n + 1;
      gate_bias[j] = bias[up_first ? second : first];
      up_bias[j] = bias[up_first ? first : second];
    }
    for (int token = thread / pairs; token < tile.count; token += step) {
      float2 gate, up;
      if (halves) {
        gate = add_slabs<kSlabs, float2>(sums + gate_row, slab_floats);
        up = add_slabs<kSlabs, float2>(sums + up_row, slab_floats);
      } else {
        const float4 v = add_slabs<kSlabs, float4>(sums + 2 * c, slab_floats);
        gate = up_first ? float2{v.y, v.w} : float2{v.x, v.z}, up = up_first ? float2{v.x, v.z} : float2{v.y, v.w};
      }
      store_pair(out, activate(a.act, fmaf(gate.x, post, gate_bias[0]), fmaf(up.x, post, up_bias[0])),
                 activate(a.act, fmaf(gate.y, post, gate_bias[1]), fmaf(up.y, post, up_bias[1])));
      sums += step * sum_pitch<kUnits>;
      out += int64_t(step) * a.out_pitch;
    }
  } else {
    const float2 b = bias ? float2{bias[column], bias[column + 1]} : float2{};
    for (int token = thread / pairs; token < tile.count; token += step) {
      const float2 v = add_slabs<kSlabs, float2>(sums + c, slab_floats);
      store_pair(out, fmaf(v.x, post, b.x), fmaf(v.y, post, b.y));
      sums += step * sum_pitch<kUnits>;
      out += int64_t(step) * a.out_pitch;
    }
  }
}

}  // namespace mxfp4
