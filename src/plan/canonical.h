// Converts the checkpoint's elements to canonical bytes, the input of layouts. Codes and E8M0 scales keep their bytes;
// F32 scales become their exponent. A bias may become F32, and a layout file may define other values for scales. The
// inverse is exact.
#pragma once

#include <cstdint>
#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

/// Bytes of one element in the checkpoint and in canonical form.
struct Width {
  int64_t source = 1, canonical = 1;
  int64_t to_canonical(int64_t bytes) const { return bytes / source * canonical; }
};
Width width_of(Part part, Dtype source, const Parameter& parameter);

/// Counts of special scales, and the first bad scale.
struct ScaleReport {
  int64_t zero = 0;                                               // bytes 0x00 (2^-127), zero F32 included
  int64_t zero_floats = 0;                                        // F32 0.0, which has no exponent
  int64_t least_floats = 0;                                       // F32 2^-127: it and 0.0 would become the same byte
  int64_t nan = 0;                                                // bytes 0xFF
  int64_t bad = 0;                                                // that cannot be stored: F32 that are no power of two
  int64_t first_nan = -1, first_bad = -1, first_zero_float = -1;  // index of the element
  std::string first;                                              // the first bad value, in words
};

/// Checks `count` scales and writes their bytes to `to`, which may be `from` if both are one byte wide.
/// largest: greater bytes are bad; it is a limit of the backend.
ScaleReport scales_to_canonical(Dtype source, const uint8_t* from, int64_t count, uint8_t* to, uint8_t largest = 0xFF);
/// Replaces scale bytes of scales_to_canonical() by their values. A scale without a value is reported as bad.
void bytes_to_values(const ScaleValues& values, uint8_t* bytes, int64_t count, ScaleReport& report);
/// The inverse of scales_to_canonical(). zero_is_float_zero: byte 0 was F32 0.0, not 2^-127.
void scales_from_canonical(Dtype source, const uint8_t* from, int64_t count, bool zero_is_float_zero, uint8_t* to);

/// Converts BF16 to F32 (exact) if the parameter is F32, else copies; and back.
void bias_to_canonical(Width width, const uint8_t* from, int64_t count, uint8_t* to);
void bias_from_canonical(Width width, const uint8_t* from, int64_t count, uint8_t* to);

}  // namespace mxfp4
