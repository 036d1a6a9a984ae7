// Pseudo-random numbers that are the same on every machine.
#pragma once

#include <cstdint>

namespace mxfp4 {

/// splitmix64: the number at `counter` in the stream `key`.
inline uint64_t random_at(uint64_t key, uint64_t counter) {
  uint64_t x = key + (counter + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace mxfp4
