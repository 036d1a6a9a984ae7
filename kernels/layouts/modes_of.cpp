// Between layouts that are defined by functions and layouts that are defined by modes.
#include "kernels/layouts/layouts.h"

namespace mxfp4 {

namespace {

/// Source of bit i of word w of a tile, from the tile's first bit.
template <class L>
Step source_in_tile(int w, int i) {
  const Byte b = L::at(w, L::bit(i) / 8);
  return {b.n, int64_t(b.b) * 8 + L::bit(i) % 8};
}

/// use(stored word, source of its bit 0) for every word of the storage, tile after tile, until it returns false.
template <class L, class Use>
bool each_word(Shape s, Use use) {
  for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn)
    for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb)
      for (int w = 0; w < words_per_tile<L>; ++w)
        if (!use(L::offset(s, tn, tb, w) / 4, Step{tn * L::tile_n, tb * L::tile_b * 8} + source_in_tile<L>(w, 0)))
          return false;
  return true;
}

template <class L>
Modes modes_of(Shape s) {
  if constexpr (is_plain<L>) {
    Modes out = {{s.b * 8, {{0, 1}}}};
    if (s.n > 1) out.push_back({s.n, {{1, 0}}});
    return out;
  } else {
    std::vector<Step> words(size_t(s.n * s.b / 4)), bits(32);
    each_word<L>(s, [&](int64_t word, Step from) { return words[size_t(word)] = from, true; });
    for (int i = 0; i < 32; ++i) bits[size_t(i)] = source_in_tile<L>(0, i);
    Modes out = factor(std::move(bits));
    for (Mode& m : factor(std::move(words))) append(out, std::move(m));
    return out;
  }
}

template <class L>
bool is_equal(const ModeLayout& modes, Shape s) {
  if (!(storage<L>(s) == modes.storage) || !fits<L>(s)) return false;
  if constexpr (is_plain<L>) {
    const int64_t row_bits = modes.storage.b * 8;
    bool equal = modes.runs && modes.unit == modes.storage.b;
    for (int64_t n = 0; equal && n < modes.storage.n; ++n) equal = modes.source(n * row_bits) == Step{n, 0};
    return equal;
  } else {
    const bool words = modes.unit == 4 || (modes.runs && modes.unit % 4 == 0);  // with the bits of the first, elsewhere
    return each_word<L>(modes.storage, [&, first = true](int64_t word, Step from) mutable {
      const int bits = words && !first ? 1 : 32;
      first = false;
      for (int i = 0; i < bits; ++i)
        if (modes.source(word * 32 + i) != from + (source_in_tile<L>(0, i) - source_in_tile<L>(0, 0))) return false;
      return true;
    });
  }
}

}  // namespace

Modes modes_of(const Layout& layout, Shape storage) {
  if (const auto* given = std::get_if<ByModes>(&layout)) return given->modes->modes;
  return std::visit([&](auto l) { return modes_of<decltype(l)>(storage); }, layout);
}

std::optional<Layout> find_equal(const ModeLayout& modes, Shape s) {
  if (modes.copies > 1) return std::nullopt;
  for (const Layout& layout : layouts)
    if (std::visit([&](auto l) { return is_equal<decltype(l)>(modes, s); }, layout)) return layout;
  return std::nullopt;
}

}  // namespace mxfp4
