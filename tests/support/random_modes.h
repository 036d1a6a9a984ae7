// Layouts made of digits with any factors, in an order that a source of numbers chooses; and the check of what drivers
// make of them. Used by a test with random numbers and by a fuzz target with its input.
#pragma once

#include <numeric>
#include <optional>
#include <stdexcept>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/device.h"
#include "tests/support/blocks_on_host.h"
#include "tests/support/random_bytes.h"

namespace mxfp4 {

/// next(n): a number below n.
template <class Next>
std::pair<Shape, Modes> made_modes(Next next) {
  const int64_t rows[] = {1, 3, 24, 40, 48, 64, 96, 128, 256}, bytes[] = {1, 2, 4, 12, 24, 32, 64, 96, 192};
  const Shape s = {rows[next(9)], bytes[next(9)]};
  std::vector<Mode> digits;
  const auto cut = [&](int64_t count, Step step) {
    while (count > 1) {
      int64_t factor = 2;
      while (count % factor) ++factor;
      digits.push_back({factor, {step}});
      step = {step.row * factor, step.bit * factor};
      count /= factor;
    }
  };
  const int64_t together = int64_t(1) << next(4);  // bits that stay together, so that units are often bytes or nibbles
  cut(s.b * 8 / together, {0, together});
  cut(s.n, {1, 0});
  for (size_t i = digits.size(); i > 1; --i) std::swap(digits[i - 1], digits[next(i)]);
  Modes modes;
  if (together > 1) modes.push_back({together, {{0, 1}}});
  for (Mode& m : digits) {
    if (next(8) == 0) {  // in another order
      Mode list{m.count, {}};
      for (int64_t d = m.count; d-- > 0;) list.steps.push_back(m.at(d));
      m = list;
    }
    append(modes, std::move(m));
  }
  if (next(6) == 0) modes.insert(modes.begin() + int64_t(next(modes.size() + 1)), {2, {{0, 0}}});
  if (modes.empty()) modes.push_back({1, {{}}});
  return {s, modes};
}

/// Pads of a matrix: what is real, and runs of pads that repeat real nibbles, at most one in each row.
struct MadePads {
  Shape real;
  std::vector<Repeat> repeats = {};
};
template <class Next>
MadePads made_pads(Next next, Shape s) {
  MadePads made{{s.n - int64_t(next(size_t(s.n))) / 2, s.b - int64_t(next(size_t(s.b))) / 2}};
  for (int64_t row = 0; row < s.n; ++row) {
    const int64_t first = row < made.real.n ? made.real.b * 2 : 0, all = s.b * 2 - first;
    if (all == 0 || next(3) == 0) continue;
    const int64_t at = first + int64_t(next(size_t(all))), from = int64_t(next(size_t(made.real.b * 2)));
    const int64_t count = 1 + int64_t(next(size_t(std::min(s.b * 2 - at, made.real.b * 2 - from))));
    made.repeats.push_back({row, at, int64_t(next(size_t(made.real.n))), from, count});
  }
  return made;
}

/// Whether every driver, and the blocks of a GPU, pack `layout` as its modes say, bit by bit, and unpack it.
inline bool are_packed(const ModeLayout& layout, Shape real) {
  const Shape s = layout.storage;
  const auto source = random_bytes(real.n * real.b, uint32_t(s.n));
  std::vector<uint8_t> rows(size_t(s.n * s.b)), want(rows.size() * size_t(layout.copies));
  for (int64_t i = 0; i < real.n * real.b; ++i) rows[size_t(i / real.b * s.b + i % real.b)] = source[size_t(i)];
  for (const Repeat& r : layout.repeats)
    for (int64_t i = 0; i < r.count * 4; ++i) {
      const int64_t from = (r.from_row * s.b * 2 + r.from_at) * 4 + i, to = (r.row * s.b * 2 + r.at) * 4 + i;
      rows[size_t(to / 8)] |= uint8_t((rows[size_t(from / 8)] >> from % 8 & 1) << to % 8);
    }
  for (int64_t p = 0; p < int64_t(want.size()) * 8; ++p) {
    const Step at = layout.source(p);
    want[size_t(p / 8)] |= uint8_t((rows[size_t(at.row * s.b + at.bit / 8)] >> at.bit % 8 & 1) << p % 8);
  }
  ByModes by;
  by.modes = &layout;
  const auto is_right = [&](Device& device) {
    std::vector<uint8_t> packed(want.size()), back(source.size());
    const PackItem item{by, {{{source.data(), real.b}}, 1, real, s, {}, {}, 0}, packed.data()};
    const UnpackItem inverse{by, want.data(), {{{back.data(), real.b}}, 1, real, s, {}, {}, 0}};
    PadReport report;
    device.pack({&item, 1});
    device.unpack({&inverse, 1}, {&report, 1});
    return packed == want && back == source && report.wrong + report.copies.wrong == 0;
  };
  for (const Driver* driver : drivers())
    if (driver->runs_here() && !is_right(*open_cpu(*driver))) return false;
  try {
    BlocksOnHost blocks;
    return is_right(blocks);
  } catch (const DeviceError&) {  // a GPU has no form for some layouts
    return true;
  }
}

/// None if the modes are refused.
inline std::optional<bool> try_modes(Shape s, const Modes& modes, const MadePads& pads) {
  std::optional<ModeLayout> layout;
  try {
    layout.emplace(s, modes);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
  layout->repeats = pads.repeats;
  return are_packed(*layout, pads.real);
}

}  // namespace mxfp4
