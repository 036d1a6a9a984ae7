#include "src/plan/canonical.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace mxfp4 {

namespace {

constexpr uint32_t least_float = 0x00400000;  // 2^-127, the value of byte 0

float load_float(const uint8_t* p) {
  float f;
  std::memcpy(&f, p, 4);
  return f;
}

/// The E8M0 byte of an F32 that is exactly 2^-127 .. 2^127; -1 for any other.
int exponent_byte(uint32_t bits) {
  if (bits == least_float) return 0;
  const uint32_t exponent = bits >> 23;
  return (bits & 0x7FFFFF) == 0 && exponent >= 1 && exponent <= 254 ? int(exponent) : -1;
}

void note_bad(ScaleReport& r, int64_t i, const std::string& value) {
  if (r.bad++ > 0) return;
  r.first_bad = i;
  r.first = value;
}

ScaleReport floats_to_bytes(const uint8_t* from, int64_t count, uint8_t* to) {
  ScaleReport r;
  for (int64_t i = 0; i < count; ++i) {
    const float f = load_float(from + 4 * i);
    const auto bits = std::bit_cast<uint32_t>(f);
    const int byte = exponent_byte(bits);
    to[i] = uint8_t(std::max(byte, 0));
    if (bits == 0) {
      if (r.zero_floats++ == 0) r.first_zero_float = i;
    } else if (byte < 0) {
      note_bad(r, i, fmt::format("{} is no power of two from 2^-127 to 2^127", f));
    }
    r.least_floats += bits == least_float;
    r.zero += to[i] == 0;
  }
  return r;
}

}  // namespace

Width width_of(Part part, Dtype source, const Parameter& parameter) {
  if (part == Part::scales || part == Part::residual) return {bits_of(source) / 8, scale_bytes(parameter)};
  if (part == Part::bias) return {2, bits_of(parameter.dtype) / 8};
  return {1, 1};
}

ScaleReport scales_to_canonical(Dtype source, const uint8_t* from, int64_t count, uint8_t* to, uint8_t largest) {
  ScaleReport r;
  if (source == Dtype::F32) {
    r = floats_to_bytes(from, count, to);
  } else {
    r.zero = std::count(from, from + count, uint8_t(0));
    if (const void* nan = std::memchr(from, 0xFF, size_t(count))) {
      r.first_nan = static_cast<const uint8_t*>(nan) - from;
      r.nan = std::count(from, from + count, uint8_t(0xFF));
    }
    if (to != from) std::memcpy(to, from, size_t(count));
  }
  if (largest < 0xFF && !r.bad)
    for (int64_t i = 0; i < count; ++i)
      if (to[i] > largest)
        note_bad(
            r, i,
            fmt::format("scale byte {} above {}, since the backend adds {} to it", to[i], largest, 0xFF - largest));
  return r;
}

void bytes_to_values(const ScaleValues& values, uint8_t* bytes, int64_t count, ScaleReport& r) {
  for (int64_t i = 0; i < count && !r.bad; ++i)
    if (!values.has(bytes[i])) {
      r.first_bad = i;
      r.first = fmt::format("scale {:#04x} has no value in the layout file, which has them for {}", bytes[i],
                            values.domain());
      r.bad = std::count_if(bytes, bytes + count, [&](uint8_t s) { return !values.has(s); });
    }
  values.widen(bytes, count);
}

void scales_from_canonical(Dtype source, const uint8_t* from, int64_t count, bool zero_is_float_zero, uint8_t* to) {
  if (source != Dtype::F32) {
    std::memcpy(to, from, size_t(count));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = from[i] ? uint32_t(from[i]) << 23 : zero_is_float_zero ? 0 : least_float;
    std::memcpy(to + 4 * i, &bits, 4);
  }
}

void bias_to_canonical(Width width, const uint8_t* from, int64_t count, uint8_t* to) {
  if (width.canonical == 2) {
    std::memcpy(to, from, size_t(count * 2));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t wide[4] = {0, 0, from[2 * i], from[2 * i + 1]};
    std::memcpy(to + 4 * i, wide, 4);
  }
}

void bias_from_canonical(Width width, const uint8_t* from, int64_t count, uint8_t* to) {
  const int64_t skip = width.canonical - 2;
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + 2 * i, from + width.canonical * i + skip, 2);
}

}  // namespace mxfp4
