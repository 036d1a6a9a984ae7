#include "kernels/pack/humming.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mxfp4 {
namespace {

constexpr int max_range = 11;  // doublings above the base
constexpr int group_bytes = 16;
constexpr uint8_t minus_zero = 8;
constexpr int doubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};  // E2M1 magnitudes times 2

/// The new byte for a byte of two codes, and the counts of changes.
struct Rewrite {
  uint8_t byte = 0, changed = 0, rounded = 0, minus_zeros = 0;
};

/// The code, without its sign, nearest to magnitude / 2^delta; ties go away from zero.
constexpr int divided(int magnitude, int delta) {
  int q = 7;
  while (q > 0 && 2 * doubled[magnitude] < (doubled[q] + doubled[q - 1]) << delta) --q;
  return q;
}

constexpr Rewrite rewrite(uint8_t byte, int delta) {
  Rewrite r;
  for (int shift : {0, 4}) {
    const int code = byte >> shift & 15;
    if (code == minus_zero) {
      ++r.minus_zeros;
      continue;
    }
    const int q = divided(code & 7, delta);
    r.byte |= uint8_t((q | (code & 8)) << shift);
    r.changed += q != (code & 7);
    r.rounded += doubled[q] << delta != doubled[code & 7];
  }
  return r;
}

/// From a delta of 5 on, 6 / 2^delta is nearest to 0.
constexpr int max_delta = 5;
constexpr auto rewrites = [] {
  std::array<std::array<Rewrite, 256>, max_delta + 1> table;
  for (int delta = 0; delta <= max_delta; ++delta)
    for (int byte = 0; byte < 256; ++byte) table[delta][byte] = rewrite(uint8_t(byte), delta);
  return table;
}();

void rewrite_group(uint8_t* codes, int delta, RewriteLoss& h) {
  const auto& table = rewrites[std::min(delta, max_delta)];
  for (int b = 0; b < group_bytes; ++b) {
    const Rewrite& r = table[codes[b]];
    codes[b] = r.byte;
    h.codes_changed += r.changed;
    h.codes_rounded += r.rounded;
    h.minus_zeros += r.minus_zeros;
  }
}

}  // namespace

RewriteLoss humming_rewrite(std::span<uint8_t> codes, std::span<uint8_t> scales) {
  RewriteLoss h;
  if (scales.empty()) return h;
  const auto [low, high] = std::minmax_element(scales.begin(), scales.end());
  const int base = std::max<int>(*low, *high - max_range);
  h.residual = std::ldexp(1.0f, base - 128);
  h.groups = int64_t(scales.size());
  for (int64_t g = 0; g < h.groups; ++g) {
    const int delta = std::max(0, base - scales[g]);
    h.groups_clamped += delta > 0;
    scales[g] = uint8_t(scales[g] + delta - base + 1);
    if (!codes.empty()) rewrite_group(codes.data() + g * group_bytes, delta, h);
  }
  return h;
}

}  // namespace mxfp4
