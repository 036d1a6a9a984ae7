// The functions that read packed bytes as each backend's hardware does, in plain C++: which thread, lane or tile reads
// which byte. Also their common helpers.
#pragma once

#include <bit>
#include <cstring>

#include "kernels/hd.h"
#include "kernels/moe/cpu/kernel_format.h"

namespace mxfp4::readers {

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

}  // namespace mxfp4::readers
