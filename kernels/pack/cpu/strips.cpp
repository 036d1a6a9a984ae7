#include "kernels/pack/cpu/strips.h"

#include <algorithm>
#include <cstring>

#include "kernels/layouts/layouts.h"
#include "kernels/pack/repeats.h"

namespace mxfp4 {

namespace {

constexpr int64_t long_run = 128;     // nibbles; the C library's memcpy is faster unless a route bypasses the caches
constexpr size_t enough_units = 512;  // of the inner sums

bool is_in_order(const ModeLayout& layout) {
  return layout.copies == 1 && layout.repeats.empty() && layout.modes == modes_of(Plain{}, layout.storage);
}

/// Calls use() with `bytes`, as a constant if it is a usual number.
template <class Use>
void with_bytes(int64_t bytes, Use use) {
  const auto is = [&](auto n) { return size_t(bytes) == n && (use(n), true); };
  if (!(is(std::integral_constant<size_t, 1>()) || is(std::integral_constant<size_t, 2>()) ||
        is(std::integral_constant<size_t, 4>()) || is(std::integral_constant<size_t, 8>()) ||
        is(std::integral_constant<size_t, 16>())))
    use(size_t(bytes));
}

}  // namespace

Strips::Strips(const ModeLayout& layout, const Driver& driver)
    : layout_(layout), driver_(driver), numbers_(numbers_of(layout)), is_plain_(is_in_order(layout)) {
  for (const Counted& d : layout.copy) {
    const size_t one = copies_.size();
    for (int64_t i = 1; i < d.mode.count; ++i)
      for (size_t j = 0; j < one; ++j) copies_.push_back(copies_[j] + i * d.weight / 4);
  }
  const bool are_bytes = std::all_of(copies_.begin(), copies_.end(), [](int64_t at) { return at % 2 == 0; });
  if (!is_plain_ && are_bytes) routes_ = find_routes(layout, numbers_, driver.vectors);
  if (numbers_.run >= long_run && routes_ && !routes_->pack.past_caches) routes_.reset();
  if (!routes_ || copies_.size() > 1) find_units();
  if (!routes_ && numbers_.run == 0) make_mixes();
}

void Strips::find_units() {
  const std::span<const List> all = numbers_.lists;
  size_t inner = 0;
  for (size_t units = 1; inner < all.size() && units < enough_units; ++inner) units *= all[inner].size();
  inner_ = sums_of(all.first(inner));
  outer_ = sums_of(all.subspan(inner));
}

void Strips::make_mixes() {
  pack_.tables.resize(size_t(layout_.unit));
  unpack_.tables.resize(size_t(layout_.unit));
  for (size_t i = 0; i < size_t(layout_.unit); ++i) {
    pack_.from[i] = unpack_.to[i] = layout_.gather[i].row * layout_.storage.b + layout_.gather[i].bit / 8;
    pack_.to[i] = unpack_.from[i] = int64_t(i);
  }
  for (int to = 0; to < int(layout_.bit.size()); ++to) {
    const int from = layout_.bit[size_t(to)];
    for (int x = 0; x < 256; ++x) {
      pack_.tables[size_t(from / 8)][size_t(x)] |= uint64_t(x >> from % 8 & 1) << to;
      unpack_.tables[size_t(to / 8)][size_t(x)] |= uint64_t(x >> to % 8 & 1) << from;
    }
  }
}

template <class Move>
void Strips::each_unit(Move move) const {
  for (const Bit& o : outer_)
    for (const Bit& i : inner_) move(Bit{o.from + i.from, o.to + i.to});
}

/// Moves every unit of a strip; places(unit) says from where and where to, in nibbles.
template <class Places>
void Strips::move(const uint8_t* from, uint8_t* to, const Mix& mix, Places places) const {
  if (numbers_.run == 0)
    return with_bytes(layout_.unit, [&](auto bytes) {
      each_unit([&, m = mix.tables.data()](Bit unit) {
        const Bit at = places(unit);
        uint64_t word = 0;
        for (size_t i = 0; i < bytes; ++i) word |= m[i][from[at.from / 2 + mix.from[i]]];
        for (size_t i = 0; i < bytes; ++i) to[at.to / 2 + mix.to[i]] = uint8_t(word >> 8 * i);
      });
    });
  if (numbers_.run % 2 == 0)
    return with_bytes(numbers_.run / 2, [&](auto bytes) {
      each_unit([&](Bit unit) {
        const Bit at = places(unit);
        std::memcpy(to + at.to / 2, from + at.from / 2, bytes);
      });
    });
  each_unit([&](Bit unit) {
    Bit at = places(unit);
    for (int64_t i = 0; i < numbers_.run; ++i, ++at.from, ++at.to) put_nibble(to, at.to, nibble_at(from, at.from));
  });
}

void Strips::pack(const uint8_t* strip, int64_t n, uint8_t* packed) const {
  for (const int64_t copy : copies_) {
    const int64_t first = place(n) + copy;
    if (routes_)
      driver_.run_route(routes_->pack, strip, packed + first / 2, true);
    else
      move(strip, packed, pack_, [=](Bit unit) { return Bit{unit.from, unit.to + first}; });
  }
}

void Strips::unpack(const uint8_t* packed, int64_t n, uint8_t* strip, bool past) const {
  const int64_t first = place(n);
  if (routes_) return driver_.run_route(routes_->unpack, packed + first / 2, strip, past);
  move(packed, strip, unpack_, [=](Bit unit) { return Bit{unit.to + first, unit.from}; });
}

bool Strips::has_equal_copies(const uint8_t* packed, int64_t n, const uint8_t* strip) const {
  bool equal = numbers_.run > 0 && numbers_.run % 2 == 0;
  for (size_t copy = 1; equal && copy < copies_.size(); ++copy)
    with_bytes(numbers_.run / 2, [&, first = place(n) + copies_[copy]](auto bytes) {
      each_unit(
          [&](Bit unit) { equal &= std::memcmp(packed + (unit.to + first) / 2, strip + unit.from / 2, bytes) == 0; });
    });
  return equal;
}

}  // namespace mxfp4
