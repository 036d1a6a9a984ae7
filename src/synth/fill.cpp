#include "src/synth/fill.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "src/base/random.h"

namespace mxfp4 {

namespace {

constexpr int64_t scale_group = 32;

/// (random & mask) + base in every element of a tensor, the elements' patterns repeated over a word.
struct Pattern {
  uint64_t mask, base;
};

/// xorshift128+ in eight lanes, an instruction set without 64-bit products suffices for vectors of them.
class Stream {
 public:
  static constexpr int lanes = 8;

  explicit Stream(uint64_t key) {
    for (int i = 0; i < lanes; ++i) {
      a_[i] = random_at(key, uint64_t(2 * i));
      b_[i] = random_at(key, uint64_t(2 * i + 1));
    }
  }

  void next(Pattern pattern, uint64_t out[lanes]) {
    for (int i = 0; i < lanes; ++i) {
      uint64_t x = a_[i];
      const uint64_t y = b_[i];
      out[i] = ((x + y) & pattern.mask) + pattern.base;
      x ^= x << 23;
      a_[i] = y;
      b_[i] = x ^ y ^ (x >> 18) ^ (y >> 5);
    }
  }

 private:
  uint64_t a_[lanes], b_[lanes];
};

void fill_pattern(uint64_t key, Pattern pattern, uint8_t* out, int64_t bytes) {
  Stream stream(key);
  uint64_t words[Stream::lanes];
  for (; bytes > 0; out += sizeof words, bytes -= int64_t(sizeof words)) {
    stream.next(pattern, words);
    std::memcpy(out, words, size_t(std::min<int64_t>(bytes, sizeof words)));
  }
}

/// An IEEE-like float: sign, exponent, mantissa.
struct Format {
  int bits, mantissa, bias;
};

Format format_of(const SynthTensor& t) {
  switch (t.dtype) {
    case Dtype::F8_E4M3:
      return {8, 3, 7};
    case Dtype::BF16:
      return {16, 7, 127};
    case Dtype::F32:
      return {32, 23, 127};
    default:
      fail(ErrorKind::usage, "{}: no random {} defined", t.name, name_of(t.dtype));
  }
}

Pattern repeat(uint64_t mask, uint64_t base, int bits) {
  for (; bits < 64; bits *= 2) {
    mask |= mask << bits;
    base |= base << bits;
  }
  return {mask, base};
}

/// Random sign and mantissa, exponents top-3 to top with equal probability: RMS 0.880 * 2^top.
Pattern floats_below(Format f, int top) {
  const uint64_t sign = uint64_t(1) << (f.bits - 1), low = (uint64_t(1) << (f.mantissa + 2)) - 1;
  return repeat(sign | low, uint64_t(top - 3 + f.bias) << f.mantissa, f.bits);
}

/// 0.875 to 1.25.
Pattern floats_near_one(Format f) {
  const uint64_t one = uint64_t(f.bias) << f.mantissa, quarter = uint64_t(1) << (f.mantissa - 2);
  return repeat(2 * quarter - 1, one - quarter, f.bits);
}

int top_for_rms(double rms) { return int(std::lround(std::log2(rms / 0.880))); }

constexpr int f8_top = 7;         // largest value 240 of 448
constexpr double f8_rms = 112.7;  // of floats_below(f8_top)

Pattern weight_pattern(const SynthTensor& t) {
  const Format f = format_of(t);
  return floats_below(f, f.bits == 8 ? f8_top : top_for_rms(1 / std::sqrt(double(t.shape.back()))));
}

/// One of two neighbouring powers of two.
Pattern block_scale_pattern(const SynthTensor& weight) {
  const double scale = 1 / (f8_rms * std::sqrt(double(weight.shape.back())));
  return repeat(1, uint64_t(127 + int(std::floor(std::log2(scale)))), 8);
}

/// Calls `zero(g)` for the zero groups g in [begin, end) of the codes whose stream is `key`.
template <class Zero>
void for_zero_groups(uint64_t key, int64_t begin, int64_t end, Zero zero) {
  for (int64_t period = begin / zero_group_period; period * zero_group_period < end; ++period) {
    const int64_t g = period * zero_group_period + int64_t(random_at(~key, uint64_t(period)) % zero_group_period);
    if (g >= begin && g < end) zero(g);
  }
}

void fill_codes(uint64_t key, uint64_t block_key, int64_t begin, uint8_t* out, int64_t bytes) {
  fill_pattern(block_key, {~uint64_t(0), 0}, out, bytes);
  for_zero_groups(key, begin / (scale_group / 2), (begin + bytes) / (scale_group / 2),
                  [&](int64_t g) { std::memset(out + g * (scale_group / 2) - begin, 0, scale_group / 2); });
}

void fill_scales(uint64_t key, uint64_t codes_key, int64_t columns, int64_t begin, uint8_t* out, int64_t bytes) {
  // The steps below have mean squares 5/4 (up: each step is 16 times rarer) and 4/7 (down: twice rarer).
  const double centre = -0.5 * std::log2(8.5625 * 5 / 4 * 4 / 7 * double(columns));
  const int low = int(std::floor(centre));
  // Between two powers of two: the upper one often enough for the mean square to be right.
  const auto upper = uint64_t(std::lround((std::exp2(2 * (centre - low)) - 1) / 3 * 65536));
  for (int64_t i = 0; i < bytes; ++i) {
    const uint64_t x = random_at(key, uint64_t(begin + i));
    const int up = std::countr_zero(x | uint64_t(1) << 32) / 4;
    const int down = std::countr_zero(x >> 32 | 1 << 8);
    out[i] = uint8_t(127 + low + (x >> 48 < upper) + up - down);
  }
  for_zero_groups(codes_key, begin, begin + bytes, [&](int64_t g) { out[g - begin] = 0; });
}

/// Row r: a random expert and others at equal distances from it.
void fill_expert_ids(uint64_t key, int64_t experts, int64_t top_k, int64_t begin, uint8_t* out, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 8) {
    const int64_t i = (begin + at) / 8, row = i / top_k, column = i % top_k;
    const int64_t first = int64_t(random_at(key, uint64_t(row)) % uint64_t(experts));
    const int64_t id = (first + column * std::max<int64_t>(1, experts / top_k)) % experts;
    std::memcpy(out + at, &id, 8);
  }
}

}  // namespace

void fill(const SynthCheckpoint& checkpoint, int64_t tensor, uint64_t seed, int64_t block, uint8_t* out,
          int64_t bytes) {
  const SynthTensor& t = checkpoint.tensors[size_t(tensor)];
  const SynthTensor& weight = checkpoint.tensors[size_t(t.weight)];
  const uint64_t key = XXH3_64bits_withSeed(t.name.data(), t.name.size(), seed);
  const uint64_t block_key = random_at(key, uint64_t(block));
  const int64_t begin = block * fill_block;
  const auto fill_with = [&](Pattern pattern) { fill_pattern(block_key, pattern, out, bytes); };
  switch (t.fill) {
    case Fill::codes:
      return fill_codes(key, block_key, begin, out, bytes);
    case Fill::scales: {
      const uint64_t codes_key = XXH3_64bits_withSeed(weight.name.data(), weight.name.size(), seed);
      return fill_scales(key, codes_key, scale_group * t.shape.back(), begin, out, bytes);
    }
    case Fill::weight:
      return fill_with(weight_pattern(t));
    case Fill::block_scales:
      return fill_with(block_scale_pattern(weight));
    case Fill::norm:
      return fill_with(floats_near_one(format_of(t)));
    case Fill::bias:
      return fill_with(floats_below(format_of(t), top_for_rms(0.02)));
    case Fill::expert_ids:
      return fill_expert_ids(key, checkpoint.experts, t.shape.back(), begin, out, bytes);
  }
}

}  // namespace mxfp4
