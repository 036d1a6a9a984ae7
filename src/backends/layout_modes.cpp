#include "src/backends/layout_modes.h"

#include <algorithm>

#include "src/backends/layout_file.h"

namespace mxfp4 {

int64_t number(const Field& f, int64_t least, int64_t most) {
  if (!f.json().is_number_integer()) f.refuse("a whole number was expected");
  const bool large = f.json().is_number_unsigned() && f.json().get<uint64_t>() > uint64_t(INT64_MAX);
  if (large || f.json().get<int64_t>() < least || f.json().get<int64_t>() > most)
    f.refuse("{}, {} to {} was expected", f.json().dump(), least, most);
  return f.json().get<int64_t>();
}

void each(const Field& list, int64_t least, int64_t most, const std::function<void(const Field&)>& use) {
  const Json& json = list.json();
  if (!json.is_array() || int64_t(json.size()) < least || int64_t(json.size()) > most)
    list.refuse("a list of {} entries was expected",
                least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most));
  list.each(use);
}

namespace {

constexpr int64_t max_modes = 64;
constexpr size_t max_repeats = 1 << 22;  // runs of nibbles: a wrong file cannot take all memory

/// Rows and bits: entries `first` and the next of a list.
Step read_step(const Field& list, size_t first) {
  const auto entry = [&](size_t i) { return list.entry(list.json()[i], i); };
  return {number(entry(first), 0, max_side), number(entry(first + 1), 0, max_side * 8)};
}

/// [count, rows, bits], or a list of [rows, bits].
Mode read_mode(const Field& v) {
  Mode mode;
  if (v.json().is_array() && v.json().size() == 3 && v.json()[0].is_number()) {
    mode.count = number(v.entry(v.json()[0], 0), 1, int64_t(1) << 43);
    mode.steps = {read_step(v, 1)};
    return mode;
  }
  if (!v.json().is_array() || v.json().empty() || !v.json()[0].is_array())
    v.refuse("[count, rows, bits] or a list of [rows, bits] was expected");
  each(v, 2, max_layout_bytes, [&](const Field& s) {
    if (!s.json().is_array() || s.json().size() != 2) s.refuse("[rows, bits] was expected");
    mode.steps.push_back(read_step(s, 0));
  });
  mode.count = int64_t(mode.steps.size());
  return mode;
}

/// A place of the storage in nibbles.
struct NibblePlace {
  int64_t row, at;
};

/// Whether the place is in a row and a column that the layer has.
bool is_real(const Matrix& m, const NibblePlace& p) {
  return p.row < m.padded.n && p.at < m.real.b * 2 && m.source(p.row).row < m.real.n;
}

/// [first, count] within `all`.
std::pair<int64_t, int64_t> read_range(const Field& v, int64_t all, int64_t multiple) {
  each(v, 2, 2, [](const Field&) {});
  const int64_t first = number(v.entry(v.json()[0], 0), 0, all), count = number(v.entry(v.json()[1], 1), 1, all);
  if (first + count > all || first % multiple || count % multiple)
    v.refuse("{} from {} on, of {}; multiples of {} were expected", count, first, all, multiple);
  return {first, count};
}

/// Appends the nibbles of one rectangle of pads.
void read_rectangle(const Field& v, const Matrix& m, Shape storage, std::vector<Repeat>& out) {
  const auto [row, rows] = read_range(v.at("rows"), storage.n, 1);
  const auto [bit, bits] = read_range(v.at("bits"), storage.b * 8, 4);
  each(v.at("from"), 2, 2, [](const Field&) {});
  const Step from = read_step(v.at("from"), 0);
  const Modes modes = read_modes(v.at("modes"));
  int64_t all = 1;
  for (const Mode& mode : modes)
    if (__builtin_mul_overflow(all, mode.count, &all)) break;
  const Mode& first = modes.front();
  if (all != rows * bits || !first.is_even() || first.steps[0] != Step{0, 1} || first.count % 4 || from.bit % 4)
    v.at("modes").refuse("modes of {} bits, whole nibbles first, were expected", rows * bits);
  for (int64_t i = 0; i < all; i += 4) {
    const Step source = source_of(modes, i) + from;
    const NibblePlace of = {source.row, source.bit / 4}, to = {row + i / bits, (bit + i % bits) / 4};
    if (source.bit % 4 || !is_real(m, of) || is_real(m, to))
      v.refuse("row {}, bit {} repeats row {}, bit {}; a pad that repeats a place of the layer was expected", to.row,
               to.at * 4, of.row, source.bit);
    Repeat* last = out.empty() ? nullptr : &out.back();
    if (last && last->row == to.row && last->at + last->count == to.at && last->from_row == of.row &&
        last->from_at + last->count == of.at)
      ++last->count;
    else
      out.push_back({to.row, to.at, of.row, of.at, 1});
    if (out.size() > max_repeats) v.refuse("more than {} runs of repeated values", max_repeats);
  }
}

}  // namespace

Modes read_modes(const Field& list) {
  Modes modes;
  each(list, 1, max_modes, [&](const Field& m) { modes.push_back(read_mode(m)); });
  return modes;
}

std::vector<Repeat> read_repeats(const Field& list, const Matrix& matrix, Shape storage) {
  std::vector<Repeat> repeats;
  each(list, 0, max_layout_bytes, [&](const Field& v) { read_rectangle(v, matrix, storage, repeats); });
  const auto place = [](const Repeat& r) { return std::pair(r.row, r.at); };
  std::sort(repeats.begin(), repeats.end(), [&](const Repeat& a, const Repeat& b) { return place(a) < place(b); });
  for (size_t i = 1; i < repeats.size(); ++i)
    if (const Repeat& a = repeats[i - 1], &b = repeats[i]; a.row == b.row && a.at + a.count > b.at)
      list.refuse("row {}, bit {} a second time", b.row, b.at * 4);
  return repeats;
}

}  // namespace mxfp4
