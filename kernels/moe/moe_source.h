// One MoE layer as the checkpoint stores it: strided views of its rows, and their exact values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/moe/moe.h"

namespace mxfp4 {

/// Row r begins at data + r * stride bytes; data is null if the checkpoint has no such tensor.
struct SourceRows {
  const uint8_t* data = nullptr;
  int64_t stride = 0;
  const uint8_t* row(int64_t r) const { return data + r * stride; }
};

/// n rows of k columns. codes: k/2 bytes a row, low nibble = even column; scales: k/32 E8M0 bytes; bias: one bf16.
struct SourceMatrix {
  int64_t n = 0, k = 0;
  SourceRows codes, scales, bias;
};

/// gate and up are [intermediate][hidden], down is [hidden][intermediate].
struct SourceExpert {
  SourceMatrix gate, up, down;
};
using MoeSource = std::vector<SourceExpert>;

/// A wrong conversion's interpretation of the checkpoint; the default is the right one.
struct Reading {
  bool swap_nibbles = false;
  uint8_t (*scale)(uint8_t) = nullptr;   // wrong conversion of a scale byte; null: right
  W13Order stored = {}, taken_for = {};  // the order of w13 in the checkpoint, unpadded, and the assumed order
  W13Order rows = {}, bias = {};         // the order in which w13's rows and bias were written, padded
  W13Order read = {};                    // the order that the kernel expects
};

/// E2M1: sign, two bits of exponent (bias 1), one of mantissa.
double code_value(unsigned code);
/// E8M0: 2^(byte - 127); 255 is NaN.
double scale_value(uint8_t byte);
/// The value of a little-endian bf16.
double bf16_value(const uint8_t* bytes);

/// The matrix.k values of one row, exact in double.
void dequantise_row(const SourceMatrix& matrix, int64_t row, const Reading& reading, std::span<double> out);
/// The bias of a row, 0 if the matrix has no bias.
double bias_of(const SourceMatrix& matrix, int64_t row);

}  // namespace mxfp4
