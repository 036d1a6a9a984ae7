#include "kernels/moe/moe_source.h"

#include <array>
#include <bit>
#include <cmath>

namespace mxfp4 {

double code_value(unsigned code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude = exponent ? std::ldexp(2 + mantissa, exponent - 2) : 0.5 * mantissa;
  return code & 8 ? -magnitude : magnitude;
}

double scale_value(uint8_t byte) {
  return byte == 255 ? std::nan("") : std::bit_cast<double>(uint64_t(byte + 1023 - 127) << 52);
}

double bf16_value(const uint8_t* bytes) {
  return std::bit_cast<float>(uint32_t(bytes[0]) << 16 | uint32_t(bytes[1]) << 24);
}

void dequantise_row(const SourceMatrix& matrix, int64_t row, const Reading& reading, std::span<double> out) {
  // The values of a byte's two codes, the low nibble's first, and the other way round.
  static const auto pairs = [] {
    std::array<std::array<std::array<double, 2>, 256>, 2> table;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const double low = code_value(byte & 15), high = code_value(byte >> 4);
      table[0][byte] = {low, high};
      table[1][byte] = {high, low};
    }
    return table;
  }();
  const uint8_t* codes = matrix.codes.row(row);
  const uint8_t* scales = matrix.scales.row(row);
  const auto& values = pairs[reading.swap_nibbles];
  for (int64_t group = 0; group < matrix.k / 32; ++group) {
    const double scale = scale_value(reading.scale ? reading.scale(scales[group]) : scales[group]);
    for (int64_t b = 16 * group; b < 16 * group + 16; ++b) {
      const auto& pair = values[codes[b]];
      out[2 * b] = scale * pair[0];
      out[2 * b + 1] = scale * pair[1];
    }
  }
}

double bias_of(const SourceMatrix& matrix, int64_t row) {
  return matrix.bias.data ? bf16_value(matrix.bias.row(row)) : 0.0;
}

}  // namespace mxfp4
