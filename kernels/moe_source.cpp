#include "kernels/moe_source.h"

#include <array>
#include <bit>
#include <cmath>

namespace mxfp4 {

double code_value(unsigned code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude = exponent ? std::ldexp(2 + mantissa, exponent - 2) : 0.5 * mantissa;
  return code & 8 ? -magnitude : magnitude;
}

double scale_value(uint8_t byte) { return byte == 255 ? std::nan("") : std::ldexp(1.0, byte - 127); }

double bf16_value(const uint8_t* bytes) {
  return std::bit_cast<float>(uint32_t(bytes[0]) << 16 | uint32_t(bytes[1]) << 24);
}

void dequantise_row(const SourceMatrix& matrix, int64_t row, const Reading& reading, std::span<double> out) {
  static const auto values = [] {
    std::array<double, 16> table;
    for (unsigned code = 0; code < 16; ++code) table[code] = code_value(code);
    return table;
  }();
  const uint8_t* codes = matrix.codes.row(row);
  const uint8_t* scales = matrix.scales.row(row);
  const int even = reading.swap_nibbles ? 4 : 0;
  for (int64_t group = 0; group < matrix.k / 32; ++group) {
    const uint8_t byte = reading.scale ? reading.scale(scales[group]) : scales[group];
    const double scale = scale_value(byte);
    for (int64_t b = 16 * group; b < 16 * group + 16; ++b) {
      out[2 * b] = scale * values[codes[b] >> even & 15];
      out[2 * b + 1] = scale * values[codes[b] >> (4 - even) & 15];
    }
  }
}

double bias_of(const SourceMatrix& matrix, int64_t row) {
  return matrix.bias.data ? bf16_value(matrix.bias.row(row)) : 0.0;
}

}  // namespace mxfp4
