// Bytes of an output that differ from their expected values.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace mxfp4 {

/// The number of different bytes, and the position of the first.
struct WrongBytes {
  int64_t count = 0, first = -1;

  /// Adds the differences of the next bytes, which begin at byte `at`.
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
