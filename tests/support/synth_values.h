// The smallest synthetic checkpoints, and their values.
#pragma once

#include <cmath>
#include <cstring>
#include <string>

#include "src/checkpoint/safetensors.h"
#include "src/synth/synth.h"

namespace mxfp4 {

inline SynthSizes tiny_sizes() {
  SynthSizes sizes;
  sizes.tiny = true;
  return sizes;
}

/// Element i as a number; the dtype is F8_E4M3, BF16 or F32.
inline double float_at(const Tensor& t, const std::string& data, int64_t i) {
  uint32_t bits = 0;
  float value;
  if (t.dtype == Dtype::F8_E4M3) {
    const uint8_t byte = uint8_t(data[size_t(i)]);
    if ((byte & 0x7F) == 0x7F) return NAN;
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    const double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
    return byte & 0x80 ? -magnitude : magnitude;
  }
  if (t.dtype == Dtype::BF16)
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, data.data() + 2 * i, 2);
  else
    std::memcpy(&bits, data.data() + 4 * i, 4);
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace mxfp4
