// How each backend's hardware reads a packed matrix: which thread, lane or tile reads which byte, in plain C++.
// Written from the kernels' side and from nothing else: no layout header is included here or in any moe_* file.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "kernels/moe/moe.h"

namespace mxfp4 {

/// One expert's w13 or w2 in memory, n rows of k columns after the engine's padding.
struct PackedMatrix {
  const uint8_t *codes = nullptr, *scales = nullptr;
  int64_t n = 0, k = 0;
  float residual = 1;  // what every scale is multiplied by
};

/// What the kernel holds a bias as: [n] elements, one per row.
enum class BiasForm { bf16, bf16_mma, f32, f32_shuffled };

/// One way of reading. A block is `rows` rows from n0 (a multiple of rows) and the columns [k0, k1), both multiples of
/// `columns`; read() writes its values to out[rows][k1 - k0] in the order of w13's or w2's rows.
/// n is a multiple of rows; k is rounded up to a multiple of columns where the storage is.
struct Fragment {
  const char* name;
  int64_t rows, columns;
  void (*read)(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out);
  int64_t (*code_bytes)(int64_t n, int64_t k);  // of one expert
  int64_t (*scale_bytes)(int64_t n, int64_t k);
  BiasForm bias;
  bool bias_in_halves;  // gate's bias, then up's, whatever the order of the rows
  bool w13_as_loaded;   // rows as the activation that follows wants them: pairs for GPT-OSS, else halves, gate first
  W13Order w13;         // the order that the kernel reads, unless w13_as_loaded
  double tolerance;     // of relative L2 on the CPU, for `reason`
  const char* reason;
};

std::span<const Fragment> fragments();
/// Null where no fragment has that name.
const Fragment* find_fragment(std::string_view name);

/// The bias of row n of one expert.
float read_bias(BiasForm form, const uint8_t* bias, int64_t n);
int64_t bias_element_bytes(BiasForm form);

namespace fragment {

inline constexpr float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
inline float code(uint32_t nibble) { return e2m1[nibble & 15]; }

inline uint32_t word(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

/// A scale byte moved into the exponent of a float or bf16, as the Ampere and Hopper kernels do: 0 is 0, 255 is Inf.
inline float exponent(uint8_t byte) { return std::bit_cast<float>(uint32_t(byte) << 23); }

/// A scale as the block-scaled tensor cores of Blackwell and CDNA4 define it: 0 is 2^-127, 255 is NaN.
inline float ue8m0(uint8_t byte) {
  return std::bit_cast<float>(byte == 0 ? 0x00400000u : byte == 255 ? 0x7FC00000u : uint32_t(byte) << 23);
}

inline int64_t up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }
inline int64_t dense_codes(int64_t n, int64_t k) { return n * k / 2; }
inline int64_t dense_scales(int64_t n, int64_t k) { return n * k / 32; }

void read_marlin(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_marlin_fp8(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_sm90_v1(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_sm90_v2(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_sm90_fp4fp8(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_triton_hopper_a(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_triton_hopper_b(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_triton_hopper_a_w4(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_triton_hopper_b_w4(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_triton_hopper_a_strided(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_triton_hopper_b_strided(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_triton_blackwell(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_sm100(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_trtllm(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_deepgemm(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_deepgemm_mega(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_aiter(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);
void read_vllm_cpu(const PackedMatrix&, int64_t n0, int64_t k0, int64_t k1, float* out);

}  // namespace fragment
}  // namespace mxfp4
