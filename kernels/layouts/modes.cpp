#include "kernels/layouts/modes.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace mxfp4 {

struct ModeLayout::Side {
  int64_t Step::*step;
  int64_t unit;
};

namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

int64_t product(const Modes& modes) {
  int64_t bits = 1;
  for (const Mode& m : modes)
    if (m.count < 1 || __builtin_mul_overflow(bits, m.count, &bits)) refuse("modes have more bits than can be counted");
  return bits;
}

/// How often every source bit is stored.
int64_t copies_of(const Modes& modes) {
  int64_t copies = 1;
  for (const Mode& m : modes)
    if (m.moves_nothing()) copies *= m.count;
  return copies;
}

/// The stored bits that `modes` count, in order.
std::vector<Step> enumerate(const Modes& modes) {
  std::vector<Step> out = {{}};
  for (const Mode& m : modes) {
    const size_t size = out.size();
    out.resize(size * size_t(m.count));
    for (int64_t d = m.count; d-- > 0;)
      for (size_t i = 0; i < size; ++i) out[size_t(d) * size + i] = out[i] + m.at(d);
  }
  return out;
}

/// One past the largest coordinate that steps reach in one direction.
int64_t extent(const Mode& m, int64_t Step::*side) {
  if (m.is_even()) return (m.count - 1) * (m.steps[0].*side);
  int64_t most = 0;
  for (const Step& s : m.steps) most = std::max(most, s.*side);
  return most;
}

void check(const Shape& storage, const Modes& modes, bool from_file) {
  if (from_file && (storage.n < 1 || storage.b < 1 || storage.n > max_side || storage.b > max_side))
    refuse("storage of " + std::to_string(storage.n) + " x " + std::to_string(storage.b) + " bytes; sides are 1 to " +
           std::to_string(max_side));
  if (from_file && storage.n * storage.b > max_storage)
    refuse("storage of more than " + std::to_string(max_storage) + " bytes for an expert");
  for (const Mode& m : modes) {
    if (m.steps.empty() || (!m.is_even() && int64_t(m.steps.size()) != m.count)) refuse("a mode without its steps");
    for (const Step& s : m.steps)
      if (s.row < 0 || s.row >= storage.n || s.bit < 0 || s.bit >= storage.b * 8)
        refuse("a step of " + std::to_string(s.row) + " rows and " + std::to_string(s.bit) +
               " bits leaves the storage");
    const Step& last = m.steps[0];
    if (m.is_even() && ((last.row && m.count - 1 > (storage.n - 1) / last.row) ||
                        (last.bit && m.count - 1 > (storage.b * 8 - 1) / last.bit)))
      refuse("a mode of " + std::to_string(m.count) + " steps leaves the storage");
  }
  const int64_t stored = product(modes), copies = copies_of(modes);
  if (stored / copies != storage.n * storage.b * 8)
    refuse("modes have " + std::to_string(stored / copies) + (copies > 1 ? " bits in each copy" : " bits") +
           ", the storage " + std::to_string(storage.n * storage.b * 8));
  if (from_file && stored > max_storage * 8)
    refuse("copies of more than " + std::to_string(max_storage) + " bytes for an expert");
}

/// Whether the bits are those of whole bytes, each bit `copies` times.
bool are_whole_bytes(std::vector<Step> bits, int64_t copies) {
  std::sort(bits.begin(), bits.end(), [](Step a, Step b) { return a.row != b.row ? a.row < b.row : a.bit < b.bit; });
  if (copies > 1) bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
  if (bits.size() % 8) return false;
  for (size_t i = 0; i < bits.size(); ++i) {
    const Step first = bits[i / 8 * 8];
    if (first.bit % 8 || bits[i].row != first.row || bits[i].bit != first.bit + int64_t(i % 8)) return false;
    if (i % 8 == 0 && i && first == bits[i - 8]) return false;
  }
  return true;
}

}  // namespace

bool Mode::moves_nothing() const {
  return count > 1 && std::all_of(steps.begin(), steps.end(), [](Step s) { return s == Step{}; });
}

ModeLayout::ModeLayout(Shape shape, Modes given, bool from_file) : storage(shape), modes(std::move(given)) {
  check(storage, modes, from_file);
  copies = copies_of(modes);
  cut_tiles(take_unit());
}

Step source_of(const Modes& modes, int64_t stored_bit) {
  Step at;
  for (const Mode& m : modes) {
    at = at + m.at(stored_bit % m.count);
    stored_bit /= m.count;
  }
  return at;
}

Step ModeLayout::source(int64_t stored_bit) const { return source_of(modes, stored_bit); }

/// Sets unit, gather and bit; gives the digits that are not in the unit.
std::vector<ModeLayout::Digit> ModeLayout::take_unit() {
  std::vector<Digit> rest;
  int64_t weight = 1;
  for (const Mode& m : modes) {
    if (m.count > 1) rest.push_back({m.moves_nothing() ? Mode{m.count, {{}}} : m, weight});
    weight *= m.count;
  }
  // Bytes that stay in a row.
  size_t first = 0;
  int64_t run = 1;
  while (first < rest.size() && rest[first].mode.is_even() && rest[first].mode.steps[0] == Step{0, run})
    run *= rest[first++].mode.count;
  if (run % 8 == 0) {
    unit = run / 8;
    runs = true;
    gather = {{0, 0}};
    rest.erase(rest.begin(), rest.begin() + int64_t(first));
  } else if (std::vector<Digit> left = rest; take_whole_bytes(left)) {
    rest = std::move(left);
  } else if (run % 4 == 0) {
    grain = 4;
    unit = run / 4;
    runs = true;
    gather = {{0, 0}};
    rest.erase(rest.begin(), rest.begin() + int64_t(first));
  } else {
    refuse(
        "the first modes make no nibble, and no 1, 2, 4 or 8 stored bytes of whole source bytes; a list may not go on "
        "beyond those");
  }
  take_copies(rest);
  return rest;
}

/// The digits that move nothing go from `rest` to `copy`.
void ModeLayout::take_copies(std::vector<Digit>& rest) {
  for (const Digit& d : rest) {
    const size_t one = d.mode.moves_nothing() ? copy.size() : 0;
    for (int64_t i = 1; one && i < d.mode.count; ++i)
      for (size_t j = 0; j < one; ++j) copy.push_back(copy[j] + i * d.weight / grain);
  }
  std::erase_if(rest, [](const Digit& d) { return d.mode.moves_nothing(); });
}

/// Divides `take` out of a digit's count. Returns false if nothing remains.
bool ModeLayout::split(Digit& d, int64_t take) {
  if (take == d.mode.count) return false;
  d.weight *= take;
  d.mode.count /= take;
  d.mode.steps[0] = d.mode.at(take);
  return true;
}

/// Digits are taken, of even modes factors of two, until they make whole bytes. Returns false if they never do.
bool ModeLayout::take_whole_bytes(std::vector<Digit>& rest) {
  Modes taken;
  for (int64_t bits = 1; bits < 64 && !rest.empty();) {
    Digit& d = rest.front();
    const int64_t take = d.mode.is_even() && d.mode.count % 2 == 0 ? 2 : d.mode.count;
    if (bits * take > 64) break;
    taken.push_back(d.mode);
    taken.back().count = take;
    bits *= take;
    if (!split(d, take)) rest.erase(rest.begin());
    if (bits % 8 || 64 % bits) continue;
    const std::vector<Step> all = enumerate(taken);
    if (!are_whole_bytes(all, copies_of(taken))) continue;
    take_bits(all);
    return true;
  }
  return false;
}

/// A bit that was taken before is of a copy, which gathers its byte again.
void ModeLayout::take_bits(const std::vector<Step>& bits) {
  unit = int64_t(bits.size()) / 8;
  for (const Step& s : bits) {
    const Place place = {s.row, s.bit / 8};
    size_t at = 0;
    const auto is_taken = [&] { return std::find(bit.begin(), bit.end(), int(at * 8) + int(s.bit % 8)) != bit.end(); };
    while (at < gather.size() && (gather[at] != place || is_taken())) ++at;
    if (at == gather.size()) gather.push_back(place);
    bit.push_back(int(at * 8) + int(s.bit % 8));
  }
}

/// Moves the digits that follow the unit in storage from `digits` to the result, until they span `together` bytes. An
/// even digit is split: only as many of its prime factors move as are needed.
std::vector<ModeLayout::Digit> ModeLayout::take_together(std::vector<Digit>& digits) {
  std::vector<Digit> taken;
  for (int64_t bits = unit * grain; bits < together * 8 && !digits.empty() && digits.front().weight == bits;) {
    Digit& d = digits.front();
    int64_t take = d.mode.is_even() ? 2 : d.mode.count;
    while (d.mode.count % take) take = take * take > d.mode.count ? d.mode.count : take + 1;
    taken.push_back(d);
    taken.back().mode.count = take;
    bits *= take;
    if (!split(d, take)) digits.erase(digits.begin());
  }
  return taken;
}

/// Separates the digits. Even digits that move whole tiles, down the rows or along them, number the tiles. The digits
/// of a tile are the others, and those that take_together() took.
void ModeLayout::cut_tiles(std::vector<Digit> digits) {
  tile = {1, runs ? unit : 1};
  for (const Place& p : gather) tile = {std::max(tile.n, p.row + 1), std::max(tile.b, p.byte + 1)};
  for (const Digit& d : digits)
    for (const Step& s : d.mode.steps)
      if (s.bit % grain)
        refuse("a mode moves units of " + std::to_string(unit * grain) + " stored bits by " + std::to_string(s.bit) +
               " bits; whole bytes or nibbles were expected");
  std::vector<Digit> inner = take_together(digits), rows, columns;
  for (Digit& d : digits) {
    const bool even = d.mode.is_even();
    auto& side = even && d.mode.steps[0].bit == 0 && d.mode.steps[0].row ? rows
                 : even && d.mode.steps[0].row == 0                      ? columns
                                                                         : inner;
    side.push_back(std::move(d));
  }
  for (const Digit& d : inner) {
    tile.n += extent(d.mode, &Step::row);
    tile.b += extent(d.mode, &Step::bit) / grain;
  }
  take_into_tile(rows, {&Step::row, 1}, tile.n, inner);
  take_into_tile(columns, {&Step::bit, grain}, tile.b, inner);
  down = tile_places(rows, {&Step::row, 1}, tile.n, storage.n);
  along = tile_places(columns, {&Step::bit, grain}, tile.b, row_grains());
  std::sort(inner.begin(), inner.end(), [](const Digit& a, const Digit& b) { return a.weight < b.weight; });
  take_tile(inner);
  strip = std::move(inner);
  strip.insert(strip.end(), columns.begin(), columns.end());
}

/// Moves to `inner` the digits that do not move by whole tiles. `size` grows with each digit that becomes part of a
/// tile.
void ModeLayout::take_into_tile(std::vector<Digit>& digits, Side side, int64_t& size, std::vector<Digit>& inner) {
  const auto step = [&](const Digit& d) { return d.mode.steps[0].*side.step / side.unit; };
  std::sort(digits.begin(), digits.end(), [&](const Digit& a, const Digit& b) { return step(a) < step(b); });
  std::vector<Digit> outer;
  for (Digit& d : digits) {
    if (step(d) > 0 && step(d) % size == 0) {
      outer.push_back(std::move(d));
      continue;
    }
    size += extent(d.mode, side.step) / side.unit;
    inner.push_back(std::move(d));
  }
  digits = std::move(outer);
}

/// The stored place in bytes of each tile along one side, whose length is `all`.
std::vector<int64_t> ModeLayout::tile_places(const std::vector<Digit>& digits, Side side, int64_t size,
                                             int64_t all) const {
  if (all % size) refuse("tiles of " + std::to_string(size) + " do not make " + std::to_string(all));
  std::vector<int64_t> at(size_t(all / size), -1), where = {0}, to = {0};
  for (const Digit& d : digits) {
    const size_t one = where.size();
    if (int64_t(one) * d.mode.count > int64_t(at.size())) refuse("more tiles than the storage has");
    for (int64_t i = 1; i < d.mode.count; ++i)
      for (size_t j = 0; j < one; ++j) {
        where.push_back(where[j] + i * (d.mode.steps[0].*side.step / side.unit / size));
        to.push_back(to[j] + i * d.weight / grain);
      }
  }
  if (where.size() != at.size()) refuse("fewer tiles than the storage has");
  for (size_t i = 0; i < where.size(); ++i) {
    if (where[i] >= int64_t(at.size()) || at[size_t(where[i])] >= 0) refuse("two tiles come from one place");
    at[size_t(where[i])] = to[i];
  }
  return at;
}

/// Sets from and to; every byte of a tile must be gathered once.
void ModeLayout::take_tile(const std::vector<Digit>& digits) {
  int64_t units = 1;
  for (const Digit& d : digits) units *= d.mode.count;  // no more than the storage has bits
  std::vector<Place> places;                            // of a unit's bytes, each once
  for (int64_t i = 0; i < unit; ++i) {
    const Place place = runs ? Place{0, i} : gather[size_t(i)];
    if (runs || std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  if (units * int64_t(places.size()) != tile.n * tile.b) refuse("bytes of a tile are lost, or taken twice");
  from = {{0, 0}};
  to = {0};
  for (const Digit& d : digits) {
    const size_t one = from.size();
    for (int64_t i = 1; i < d.mode.count; ++i)
      for (size_t j = 0; j < one; ++j) {
        const Step step = d.mode.at(i);
        from.push_back({from[j].row + step.row, from[j].byte + step.bit / grain});
        to.push_back(to[j] + i * d.weight / grain);
      }
    const Step first = d.mode.at(0);
    for (size_t j = 0; j < one; ++j) from[j] = {from[j].row + first.row, from[j].byte + first.bit / grain};
  }
  std::vector<bool> seen(size_t(tile.n * tile.b));
  for (const Place& u : from)
    for (const Place& p : places) {
      const int64_t row = u.row + p.row, byte = u.byte + p.byte;
      if (row >= tile.n || byte >= tile.b) refuse("a unit reaches beyond its tile");
      if (seen[size_t(row * tile.b + byte)]) refuse("bytes of a tile are lost, or taken twice");
      seen[size_t(row * tile.b + byte)] = true;
    }
}

namespace {

/// Whether the first `count` digits move in the same way for all values of the others.
bool is_digit(const std::vector<Step>& steps, size_t count) {
  for (size_t i = count; i < steps.size(); ++i)
    if (steps[i] - steps[i / count * count] != steps[i % count] - steps[0]) return false;
  return true;
}

Mode as_mode(std::vector<Step> steps) {
  const int64_t count = int64_t(steps.size());
  for (int64_t d = 0; d < count; ++d)
    if (steps[size_t(d)] != Step{d * steps[1].row, d * steps[1].bit}) return {count, std::move(steps)};
  return {count, {steps[1]}};
}

/// Subtracts the least step in each direction, so that the first source bit is bit 0 of row 0.
std::vector<Step> from_zero(std::vector<Step> steps) {
  Step least = steps.front();
  for (const Step& s : steps) least = {std::min(least.row, s.row), std::min(least.bit, s.bit)};
  for (Step& s : steps) s = s - least;
  return steps;
}

}  // namespace

void append(Modes& modes, Mode m) {
  if (m.count == 1 && m.steps[0] == Step{}) return;
  Mode* last = modes.empty() ? nullptr : &modes.back();
  if (last && last->is_even() && m.is_even() && last->at(last->count) == m.steps[0])
    last->count *= m.count;
  else
    modes.push_back(std::move(m));
}

Modes factor(std::vector<Step> steps) {
  Modes out;
  while (steps.size() > 1) {
    size_t count = 2;
    while (count < steps.size() && (steps.size() % count || !is_digit(steps, count))) ++count;
    const Mode digit = as_mode(from_zero({steps.begin(), steps.begin() + int64_t(count)}));
    for (size_t i = 0; i < steps.size() / count; ++i) steps[i] = steps[i * count];
    steps.resize(steps.size() / count);
    append(out, digit);
  }
  if (out.empty()) out.push_back({1, {{}}});
  return out;
}

}  // namespace mxfp4
