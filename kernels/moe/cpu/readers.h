// Helpers of read_*.cpp, which read packed bytes as each backend's hardware does, in plain C++: which thread, lane or
// tile reads which byte. Each file ends with its formats.
#pragma once

#include <bit>
#include <cstring>
#include <span>

#include "kernels/hd.h"
#include "kernels/moe/cpu/kernel_format.h"

namespace mxfp4::readers {

extern const std::span<const KernelFormat> marlin_formats, humming_formats, hopper_formats, blackwell_formats,
    other_formats;

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

inline constexpr W13Order gate_up{0, false}, up_gate{0, true};

constexpr KernelFormat flashinfer(const char* name, int64_t rows, ReadBlock* read, CudaReader cuda = CudaReader::none) {
  return {
      .name = name, .rows = rows, .columns = 128, .read = read, .bias = BiasForm::bf16, .w13 = up_gate, .cuda = cuda};
}

/// A format whose codes were rewritten. Codes whose scale is more than 11 powers of two below the largest lose their
/// last bits.
constexpr KernelFormat rewritten(KernelFormat f) {
  f.tolerance = 1e-3;
  f.reason = "codes rewritten to a scale range of 11 powers of two";
  return f;
}

}  // namespace mxfp4::readers
