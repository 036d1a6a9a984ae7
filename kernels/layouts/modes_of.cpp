// Between layouts that are defined by functions and layouts that are defined by modes.
#include <algorithm>
#include <stdexcept>

#include "kernels/layouts/layouts.h"

namespace mxfp4 {

namespace {

/// Source of bit i of word w of a tile, from the tile's first bit.
template <class L>
Step source_in_tile(int w, int i) {
  const Byte b = L::at(w, bit_of<L>(i) / 8);
  return {b.n, int64_t(b.b) * 8 + bit_of<L>(i) % 8};
}

/// A word's source, and its place in storage in words.
struct Moved {
  Step from;
  int64_t to;
};

/// Appends the digits that count `words`, which the first one precedes in storage. A digit moves words evenly there.
void take_digits(std::vector<Moved> words, std::vector<std::pair<int64_t, Mode>>& digits) {
  const auto least = [](const Moved& a, const Moved& b) { return a.to < b.to; };
  std::sort(words.begin(), words.end(), least);
  const auto is_digit = [&](size_t count) {
    for (size_t i = 1; i < words.size(); ++i) {
      const Moved &of_digit = words[i % count], &of_rest = words[i / count * count], &first = words[0];
      if (words[i].from - of_rest.from != of_digit.from - first.from) return false;
      if (words[i].to - of_rest.to != int64_t(i % count) * (words[1].to - first.to)) return false;
    }
    return true;
  };
  while (words.size() > 1) {
    size_t count = 2;
    while (count < words.size() && (words.size() % count || !is_digit(count))) ++count;
    Modes mode = factor([&] {
      std::vector<Step> steps;
      for (size_t i = 0; i < count; ++i) steps.push_back(words[i].from);
      return steps;
    }());
    int64_t weight = words[1].to - words[0].to;
    for (Mode& m : mode) {
      digits.emplace_back(weight, m);
      weight *= m.count;
    }
    for (size_t i = 0; i < words.size() / count; ++i) words[i] = words[i * count];
    words.resize(words.size() / count);
  }
}

/// The words of a tile, and the tiles down the rows and along them, are counted by digits of their own. In storage
/// these are digits of one number.
template <class L>
Modes modes_of(Shape s) {
  if constexpr (is_plain<L>) {
    Modes out = {{s.b * 8, {{0, 1}}}};
    if (s.n > 1) out.push_back({s.n, {{1, 0}}});
    return out;
  } else {
    std::vector<Moved> words, down, along;
    for (int w = 0; w < words_per_tile<L>; ++w) words.push_back({source_in_tile<L>(w, 0), L::offset(s, 0, 0, w) / 4});
    for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn) down.push_back({{tn * L::tile_n, 0}, L::offset(s, tn, 0, 0) / 4});
    for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb)
      along.push_back({{0, tb * L::tile_b * 8}, L::offset(s, 0, tb, 0) / 4});
    std::vector<std::pair<int64_t, Mode>> digits;
    for (auto* moved : {&words, &down, &along}) take_digits(std::move(*moved), digits);
    std::sort(digits.begin(), digits.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Step> bits(32);
    for (int i = 0; i < 32; ++i) bits[size_t(i)] = source_in_tile<L>(0, i);
    Modes out = factor(std::move(bits));
    int64_t weight = 1;
    for (auto& [at, mode] : digits) {
      if (at != weight) throw std::logic_error(std::string(L::name) + ": its words are not counted by digits");
      weight *= mode.count;
      append(out, std::move(mode));
    }
    return out;
  }
}

}  // namespace

Modes modes_of(const Layout& layout, Shape storage) {
  if (const auto* given = std::get_if<ByModes>(&layout)) return given->modes->modes;
  return std::visit([&](auto l) { return modes_of<decltype(l)>(storage); }, layout);
}

std::optional<Layout> find_equal(const ModeLayout& modes, Shape s) {
  const auto is_equal = [&](const Layout& layout) {
    return fits(layout, s) && storage_of(layout, s) == modes.storage &&
           fewest(modes_of(layout, modes.storage)) == modes.modes;
  };
  const auto* const found = std::find_if(layouts.begin(), layouts.end(), is_equal);
  return found == layouts.end() || !modes.repeats.empty() ? std::nullopt : std::optional(*found);
}

}  // namespace mxfp4
