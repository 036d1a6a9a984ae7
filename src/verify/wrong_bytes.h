// Bytes of an output that are not what they are compared with.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace mxfp4 {

/// Bytes that differ: how many, and the first.
struct WrongBytes {
  int64_t count = 0, first = -1;

  /// What follows, from byte `at` on.
  void add(int64_t at, const WrongBytes& next) {
    if (count == 0 && next.count > 0) first = at + next.first;
    count += next.count;
  }
  std::string text() const { return count == 1 ? "1 byte differs" : fmt::format("{} bytes differ", count); }
};

inline WrongBytes difference(const uint8_t* a, const uint8_t* b, int64_t bytes) {
  WrongBytes d;
  if (std::equal(a, a + bytes, b)) return d;
  for (int64_t i = 0; i < bytes; ++i)
    if (a[i] != b[i] && d.count++ == 0) d.first = i;
  return d;
}

}  // namespace mxfp4
