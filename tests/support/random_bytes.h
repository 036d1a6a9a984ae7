#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace mxfp4 {

/// Fills the buffer with bytes that depend on the seed only.
inline void fill_random(uint8_t* bytes, int64_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < n; i += 8) {
    const uint64_t x = random();
    std::memcpy(bytes + i, &x, size_t(std::min<int64_t>(8, n - i)));
  }
}

inline std::vector<uint8_t> random_bytes(int64_t n, uint32_t seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(n));
  fill_random(bytes.data(), n, seed);
  return bytes;
}

}  // namespace mxfp4
