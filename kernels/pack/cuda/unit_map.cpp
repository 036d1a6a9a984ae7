#include "kernels/pack/cuda/unit_map.h"

#include <algorithm>

#include "kernels/device_error.h"

namespace mxfp4 {

namespace {

constexpr size_t enough_lows = 128;  // several warps then store one contiguous piece of the packed matrix

/// A digit of a unit's number: the move of each of its values.
using Digit = std::vector<UnitPlace>;

/// A digit of `count` values, d * first of the mode for each d. weight: stored bytes per step.
Digit digit_of(const Mode& m, int64_t first, int64_t count, int64_t weight) {
  Digit digit;
  for (int64_t d = 0; d < count; ++d) {
    const Step s = m.at(first * d);
    digit.push_back({uint32_t(s.row), uint32_t(s.bit / 8), uint32_t(weight * d)});
  }
  return digit;
}

/// Splits an even mode into digits with a prime number of values, which can be distributed more finely.
void add_digits(const Mode& m, int64_t count, int64_t first, int64_t weight, std::vector<Digit>& digits) {
  if (!m.is_even()) return digits.push_back(digit_of(m, 1, count, weight));
  for (int64_t prime = 2; count > 1; ++prime) {
    if (prime * prime > count) prime = count;
    for (; count % prime == 0; count /= prime, first *= prime, weight *= prime)
      digits.push_back(digit_of(m, first, prime, weight));
  }
}

/// The digits that number units, without those of copies. unit: bytes of a unit; for a layout that runs, a part of its
/// unit.
std::vector<Digit> digits_of(const ModeLayout& layout, int64_t unit) {
  std::vector<Digit> digits;
  const int64_t bits = layout.unit * 8;
  if (layout.runs) add_digits({layout.unit / unit, {{0, unit * 8}}}, layout.unit / unit, 1, unit, digits);
  int64_t weight = 1;
  for (const Mode& m : layout.modes) {
    const int64_t taken = std::clamp<int64_t>(bits / weight, 1, m.count);  // by the unit
    if (taken < m.count && !m.moves_nothing()) add_digits(m, m.count / taken, taken, weight * taken / 8, digits);
    weight *= m.count;
  }
  return digits;
}

/// How far in the source the digit moves least.
int64_t least_move(const Digit& digit, int64_t row_bytes) {
  int64_t least = INT64_MAX;
  for (const UnitPlace& p : digit)
    if (const int64_t move = p.row * row_bytes + p.byte) least = std::min(least, move);
  return least;
}

/// Every sum of a value of each digit, the first digit fastest.
void add_digit(std::vector<UnitPlace>& places, const Digit& digit) {
  const size_t size = places.size();
  places.resize(size * digit.size());
  for (size_t d = digit.size(); d-- > 0;)
    for (size_t i = 0; i < size; ++i) places[d * size + i] = places[i] + digit[d];
}

int64_t unit_bytes(const ModeLayout& layout) {
  if (!layout.runs) return layout.unit;
  int64_t bytes = 8;
  while (layout.unit % bytes) bytes /= 2;
  return bytes;
}

void take_gather(const ModeLayout& layout, UnitMap& map) {
  for (int j = 0; j < map.bytes; ++j) {
    const ModeLayout::Place place = layout.runs ? ModeLayout::Place{0, j} : layout.gather[size_t(j)];
    map.row[j] = uint32_t(place.row);
    map.byte[j] = uint32_t(place.byte);
    map.in_row &= map.row[j] == map.row[0] && map.byte[j] == map.byte[0] + uint32_t(j);
    map.last[j] = uint8_t(j);
    for (int i = 0; i < j; ++i)
      if (map.row[i] == map.row[j] && map.byte[i] == map.byte[j]) {
        map.is_repeated |= uint8_t(1 << i);
        map.last[i] = uint8_t(j);
      }
  }
}

void take_turns(const ModeLayout& layout, UnitMap& map) {
  const int bits = map.bytes * 8;
  for (int by = 0; by < bits; ++by) {
    uint64_t mask = 0;
    for (int to = 0; to < bits; ++to) {
      const int from = layout.runs ? to : layout.bit[size_t(to)];
      if ((to + by) % bits == from) mask |= uint64_t(1) << to;
    }
    if (mask) map.turn[map.turns++] = {mask, by};
  }
}

}  // namespace

Units::Units(const ModeLayout& layout) : low(1), high(1), copy(layout.copy.begin(), layout.copy.end()) {
  if (layout.grain < 8 || !layout.repeats.empty())
    throw DeviceError(
        "a GPU cannot pack a layout whose bytes have nibbles of several bytes, or whose pads repeat "
        "values; use --device cpu");
  map.bytes = int(unit_bytes(layout));
  take_gather(layout, map);
  take_turns(layout, map);
  std::vector<Digit> digits = digits_of(layout, map.bytes);
  auto next = digits.begin();
  while (next != digits.end() && low.size() < enough_lows) add_digit(low, *next++);
  std::stable_sort(next, digits.end(), [&](const Digit& a, const Digit& b) {
    return least_move(a, layout.storage.b) < least_move(b, layout.storage.b);
  });
  while (next != digits.end()) add_digit(high, *next++);
  map.low = low.data();
  map.high = high.data();
  map.copy = copy.data();
  map.lows = uint32_t(low.size());
  map.copies = uint32_t(copy.size());
  map.count = uint32_t(low.size() * high.size());
}

}  // namespace mxfp4
