#include "kernels/layouts/modes.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace mxfp4 {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

int64_t product(const Modes& modes) {
  int64_t bits = 1;
  for (const Mode& m : modes)
    if (m.count < 1 || __builtin_mul_overflow(bits, m.count, &bits)) refuse("modes have more bits than can be counted");
  return bits;
}

Modes without_copies(Modes modes) {
  std::erase_if(modes, [](const Mode& m) { return m.moves_nothing(); });
  return modes;
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

void check(const Shape& storage, const Modes& modes) {
  if (storage.n < 1 || storage.b < 1 || storage.n > max_side || storage.b > max_side)
    refuse("storage of " + std::to_string(storage.n) + " x " + std::to_string(storage.b) + " bytes; sides are 1 to " +
           std::to_string(max_side));
  if (storage.n * storage.b > max_storage)
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
  if (stored > max_storage * 8) refuse("copies of more than " + std::to_string(max_storage) + " bytes for an expert");
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

/// Whether the modes count each bit of the storage once. They have as many as the storage.
bool is_bijection(Shape storage, Modes modes) {
  Step side = {storage.n, storage.b * 8};
  // Without a digit that moves as far as all others together fill, these must fill the rest.
  const auto is_outermost = [&](const Mode& m) {
    const Step step = m.steps[0];
    if (!m.is_even()) return false;
    if (step.bit == 0 && step.row * m.count == side.row) return side.row = step.row, true;
    if (step.row == 0 && step.bit * m.count == side.bit) return side.bit = step.bit, true;
    return false;
  };
  while (std::erase_if(modes, is_outermost) > 0) continue;
  std::vector<uint64_t> seen(size_t(side.row * side.bit + 63) / 64, 0);
  const auto see = [&](const auto& again, size_t left, Step at) -> bool {
    for (int64_t d = 0; left > 0 && d < modes[left - 1].count; ++d)
      if (!again(again, left - 1, at + modes[left - 1].at(d))) return false;
    if (left > 0) return true;
    if (at.row >= side.row || at.bit >= side.bit) return false;
    const auto place = uint64_t(at.row * side.bit + at.bit);
    const bool fresh = (seen[place / 64] >> place % 64 & 1) == 0;
    seen[place / 64] |= uint64_t(1) << place % 64;
    return fresh;
  };
  return see(see, modes.size(), {});
}

}  // namespace

bool Mode::moves_nothing() const {
  return count > 1 && std::all_of(steps.begin(), steps.end(), [](Step s) { return s == Step{}; });
}

ModeLayout::ModeLayout(Shape shape, Modes given, bool from_file) : storage(shape) {
  if (from_file) check(shape, given);
  modes = fewest(given);
  copies = copies_of(modes);
  for (int64_t weight = 1; const Mode& m : modes) {
    rest.push_back({m, weight});
    weight *= m.count;
  }
  if (!take_run(8) && !take_whole_bytes() && !take_run(4))
    refuse(
        "the first modes make no nibble, and no 1, 2, 4 or 8 stored bytes of whole source bytes; a list may not go on "
        "beyond those");
  for (const Counted& d : rest) {
    if (d.mode.moves_nothing()) copy.push_back(d);
    for (const Step& s : d.mode.steps)
      if (s.bit % grain)
        refuse("a mode moves units of " + std::to_string(unit * grain) + " stored bits by " + std::to_string(s.bit) +
               " bits; whole bytes or nibbles were expected");
  }
  std::erase_if(rest, [](const Counted& d) { return d.mode.moves_nothing(); });
  if (from_file && !is_bijection(storage, without_copies(given)))
    refuse("modes store some bits twice, and others never");
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

/// A unit of bits that stay in a row, if these are a multiple.
bool ModeLayout::take_run(int64_t multiple) {
  const Mode& first = modes[0];
  if (!first.is_even() || first.steps[0] != Step{0, 1} || first.count % multiple) return false;
  grain = int(multiple);
  unit = first.count / multiple;
  rest.erase(rest.begin());
  return runs = true;
}

/// Digits are taken, of even modes factors of two, until they make whole bytes. Returns false if they never do.
bool ModeLayout::take_whole_bytes() {
  Modes taken;
  std::vector<Counted> left = rest;
  for (int64_t bits = 1; bits < 64 && !left.empty();) {
    Mode& m = left.front().mode;
    const int64_t take = m.is_even() && m.count % 2 == 0 ? 2 : m.count;
    if (bits * take > 64) break;
    taken.push_back(m);
    taken.back().count = take;
    bits *= take;
    if (take == m.count)
      left.erase(left.begin());
    else
      left.front() = {{m.count / take, {m.at(take)}}, bits};
    if (bits % 8 || 64 % bits) continue;
    const std::vector<Step> all = enumerate(taken);
    if (!are_whole_bytes(all, copies_of(taken))) continue;
    take_bits(all);
    rest = std::move(left);
    return true;
  }
  return false;
}

/// A bit that was taken before is of a copy, which gathers its byte again.
void ModeLayout::take_bits(const std::vector<Step>& bits) {
  unit = int64_t(bits.size()) / 8;
  for (const Step& s : bits) {
    const Step place = {s.row, s.bit / 8 * 8};
    size_t at = 0;
    const auto is_taken = [&] { return std::find(bit.begin(), bit.end(), int(at * 8) + int(s.bit % 8)) != bit.end(); };
    while (at < gather.size() && (gather[at] != place || is_taken())) ++at;
    if (at == gather.size()) gather.push_back(place);
    bit.push_back(int(at * 8) + int(s.bit % 8));
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
  if (m.count == 1) return;
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

Modes fewest(const Modes& modes) {
  Modes out;
  for (const Mode& m : modes)
    for (const Mode& digit : m.is_even() ? Modes{m} : factor(m.steps)) append(out, digit);
  if (out.empty()) out.push_back({1, {{}}});
  return out;
}

}  // namespace mxfp4
