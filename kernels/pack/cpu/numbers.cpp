#include "kernels/pack/cpu/numbers.h"

#include <algorithm>

namespace mxfp4 {

namespace {

constexpr int64_t enough = 32 << 10;   // bytes of a strip; twice if a line of the packed matrix has several rows
constexpr int64_t line_bits = 64 * 8;  // of the packed matrix: no two strips share a line of the cache

/// The digits that count runs of nibbles; their number becomes n.run. If there are none, or copies are within a unit,
/// the digits that count units.
std::vector<Counted> digits_of(const ModeLayout& layout, Numbers& n) {
  int64_t copies = 1, weight = 1;
  for (const Counted& d : layout.copy) copies *= d.mode.count;
  const Mode& first = layout.modes[0];
  if (first.steps[0] != Step{0, 1} || !first.is_even() || first.count % 4 || copies != layout.copies)
    return layout.rest;
  n.run = first.count / 4;
  std::vector<Counted> digits;
  for (const Mode& m : layout.modes) {
    if (weight > 1 && !m.moves_nothing()) digits.push_back({m, weight});
    weight *= m.count;
  }
  return digits;
}

/// Takes from the digits those that count strips. Digits that count columns or rows of all others go to the end.
void cut_strips(std::vector<Counted>& digits, Shape storage, Numbers& n) {
  const auto last_while = [&](auto is) {
    for (auto d = digits.begin(); (d = std::find_if(digits.begin(), digits.end(), is)) != digits.end();)
      std::rotate(d, d + 1, digits.end());
  };
  int64_t bits = storage.b * 8;
  last_while([&](const Counted& d) {
    const Step step = d.mode.steps[0];
    if (!d.mode.is_even() || step.row || step.bit * d.mode.count != bits || d.weight < line_bits) return false;
    bits = step.bit;
    return true;
  });
  n.rows = storage.n;
  std::vector<List> lists;
  last_while([&](Counted& d) {
    const Step step = d.mode.steps[0];
    if (!d.mode.is_even() || step.bit || step.row * d.mode.count != n.rows) return false;
    int64_t taken = d.mode.count;
    const auto fits = [&] {
      return d.mode.count % taken == 0 && n.rows / taken * storage.b >= enough * (d.weight < line_bits ? 2 : 1) &&
             d.mode.count / taken * d.weight % line_bits == 0;
    };
    while (taken > 1 && !fits()) --taken;
    n.rows /= taken;
    d.mode.count /= taken;
    List& list = lists.emplace_back();
    for (int64_t i = 0; i < taken; ++i) list.push_back({i * n.rows, i * d.mode.count * d.weight / 4});
    return taken > 1;
  });
  n.strips.resize(size_t(storage.n / n.rows));
  for (const Bit& s : sums_of(lists)) n.strips[size_t(s.from / n.rows)] = s.to;
}

}  // namespace

List sums_of(std::span<const List> lists, Bit first) {
  List sums = {first};
  for (const List& list : lists) {
    List longer;
    for (const Bit& d : list)
      for (const Bit& s : sums) longer.push_back({s.from + d.from, s.to + d.to});
    sums = std::move(longer);
  }
  return sums;
}

std::vector<int64_t> sums_of(const std::vector<int64_t>& steps) {
  std::vector<int64_t> sums = {0};
  for (const int64_t step : steps)
    for (size_t i = 0, size = sums.size(); i < size; ++i) sums.push_back(sums[i] + step);
  return sums;
}

Numbers numbers_of(const ModeLayout& layout) {
  Numbers n;
  std::vector<Counted> digits = digits_of(layout, n);
  cut_strips(digits, layout.storage, n);
  for (const Counted& d : digits) {
    List& list = n.lists.emplace_back();
    for (int64_t i = 0; i < d.mode.count; ++i) {
      const Step s = d.mode.at(i);
      list.push_back({s.row * layout.storage.b * 2 + s.bit / 4, i * d.weight / 4});
    }
  }
  return n;
}

}  // namespace mxfp4
