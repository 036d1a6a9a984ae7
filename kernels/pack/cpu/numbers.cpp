#include "kernels/pack/cpu/numbers.h"

#include <algorithm>

namespace mxfp4 {

std::vector<int64_t> sums_of(const std::vector<int64_t>& steps) {
  std::vector<int64_t> sums = {0};
  for (const int64_t step : steps)
    for (size_t i = 0, size = sums.size(); i < size; ++i) sums.push_back(sums[i] + step);
  return sums;
}

namespace {

/// The steps whose sums are these places, each once, or nothing. The least place is 0.
std::optional<std::vector<int64_t>> steps_of(std::vector<int64_t> places) {
  std::sort(places.begin(), places.end());
  std::vector<int64_t> steps;
  for (size_t i = 1; i < places.size(); i *= 2) steps.push_back(places[i]);
  std::vector<int64_t> sums = sums_of(steps);
  std::sort(sums.begin(), sums.end());
  const bool once = std::adjacent_find(sums.begin(), sums.end()) == sums.end();
  return once && sums == places ? std::optional(steps) : std::nullopt;
}

void add_digit(Numbers& n, int64_t count, Bit step) {
  for (; count % 2 == 0; count /= 2) {
    n.bits.push_back(step);
    step = {step.from * 2, step.to * 2};
  }
  std::vector<Bit> odd;
  for (int64_t i = 0; i < count; ++i) odd.push_back({i * step.from, i * step.to});
  n.digits.push_back(std::move(odd));
}

/// A unit that moves whole nibbles: they are counted by bits like all others. False: they are not.
bool add_nibbles(Numbers& n, const ModeLayout& layout) {
  std::vector<int64_t> places, steps;
  for (size_t i = 0; i < layout.bit.size(); i += 4) {
    const int first = layout.bit[i];
    for (int k = 1; k < 4; ++k)
      if (first % 4 || layout.bit[i + size_t(k)] != first + k) return false;
    const auto& byte = layout.gather[size_t(first / 8)];
    places.push_back((byte.row * layout.storage.b + byte.byte) * 2 + first % 8 / 4);
  }
  for (size_t i = 1; i < places.size(); i *= 2) steps.push_back(places[i] - places[0]);
  std::vector<int64_t> sums = sums_of(steps);
  for (int64_t& sum : sums) sum += places[0];
  if (sums != places || *std::min_element(steps.begin(), steps.end()) <= 0) return false;
  n.first = places[0];
  for (size_t i = 0; i < steps.size(); ++i) n.bits.push_back({steps[i], int64_t(1) << i});
  return true;
}

/// A unit whose bits are mixed. False: its bytes have no such bits.
bool add_unit(Numbers& n, const ModeLayout& layout) {
  std::vector<int64_t> places;
  for (const auto& p : layout.gather) places.push_back((p.row * layout.storage.b + p.byte) * 2);
  n.mixes = true;
  n.bits.push_back({1, 1});
  n.first = *std::min_element(places.begin(), places.end());
  for (int64_t& p : places) p -= n.first;
  const auto steps = steps_of(places);
  if (!steps) return false;
  for (size_t i = 0; i < steps->size(); ++i) {
    n.gathered.push_back(int(n.bits.size()));
    n.bits.push_back({(*steps)[i], 0});
    n.stored.push_back(int(n.bits.size()));
    n.bits.push_back({0, int64_t(2) << i});
  }
  const std::vector<int64_t> sums = sums_of(*steps);
  for (const int64_t p : places) n.plane.push_back(int(std::find(sums.begin(), sums.end(), p) - sums.begin()));
  return true;
}

/// A digit whose values move as a list says.
void add_list(Numbers& n, const std::vector<Bit>& list) {
  const Bit step = list.size() > 1 ? list[1] : Bit{};
  bool even = true;
  for (int64_t i = 0; i < int64_t(list.size()); ++i)
    even = even && list[size_t(i)].from == i * step.from && list[size_t(i)].to == i * step.to;
  if (even)
    add_digit(n, int64_t(list.size()), step);
  else
    n.digits.push_back(list);
}

}  // namespace

std::optional<Numbers> numbers_of(const ModeLayout& layout, int64_t tiles) {
  Numbers n;
  const int64_t nibbles = layout.grain / 4, row = layout.storage.b * 2;
  if (layout.runs)
    add_digit(n, layout.unit * nibbles, {1, 1});
  else if (!add_nibbles(n, layout) && !add_unit(n, layout))
    return std::nullopt;
  for (const ModeLayout::Digit& d : layout.strip) {
    const auto moves = [&](int64_t i) {
      const Step s = d.mode.at(i);
      return Bit{s.row * row + s.bit / 4, i * d.weight / 4};
    };
    std::vector<Bit> list;
    for (int64_t i = 0; i < d.mode.count; ++i) list.push_back(moves(i));
    add_list(n, list);
  }
  std::vector<Bit> list;
  for (int64_t i = 0; i < tiles; ++i)
    list.push_back({i * layout.tile.n * row, (layout.down[size_t(i)] - layout.down[0]) * nibbles});
  add_list(n, list);
  return n;
}

}  // namespace mxfp4
