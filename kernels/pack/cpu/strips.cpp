#include "kernels/pack/cpu/strips.h"

#include <algorithm>
#include <cstring>

namespace mxfp4 {

namespace {

constexpr int64_t enough = 32 << 10;  // bytes of a strip, if enough rows of tiles are stored alike

constexpr int64_t long_run = 64;  // bytes; the C library's memcpy is faster unless a route bypasses the caches

/// Whether every group of `tiles` rows of tiles is stored like the first group.
bool are_alike(const std::vector<int64_t>& down, size_t tiles) {
  for (size_t i = tiles; i < down.size(); ++i)
    if (down[i] - down[i / tiles * tiles] != down[i % tiles] - down[0]) return false;
  return true;
}

int64_t tiles_together(const ModeLayout& layout) {
  const size_t all = layout.down.size();
  size_t most = 1;
  for (size_t tiles = 1; tiles <= all && int64_t(most) * layout.tile.n * layout.storage.b < enough; ++tiles)
    if (all % tiles == 0 && are_alike(layout.down, tiles)) most = tiles;
  return int64_t(most);
}

bool is_in_order(const ModeLayout& layout) {
  bool same = layout.runs && layout.grain == 8 && layout.unit == layout.storage.b && layout.copies == 1 &&
              layout.repeats.empty();
  for (int64_t n = 0; same && n < layout.storage.n; ++n) same = layout.source(n * layout.unit * 8) == Step{n, 0};
  return same;
}

/// Whether copies and strips begin with a byte.
bool are_bytes(const ModeLayout& layout) {
  const auto is_odd = [](int64_t place) { return place % 2 != 0; };
  return layout.grain == 8 || (std::none_of(layout.copy.begin(), layout.copy.end(), is_odd) &&
                               std::none_of(layout.down.begin(), layout.down.end(), is_odd));
}

int nibble(const uint8_t* bytes, int64_t at) { return bytes[at / 2] >> at % 2 * 4 & 15; }

}  // namespace

Strips::Strips(const ModeLayout& layout, const Driver& driver)
    : layout_(layout), driver_(driver), tiles_(tiles_together(layout)), is_plain_(is_in_order(layout)) {
  if (driver.run_route && !is_plain_ && are_bytes(layout)) routes_ = find_routes(layout, tiles_, driver.vectors);
  if (layout.runs && layout.unit >= long_run && routes_ && !routes_->pack.past_caches) routes_.reset();
  const int64_t row = layout.row_grains();
  for (const auto& p : layout.from) from_.push_back(p.row * row + p.byte);
  if (layout.runs) return;
  for (size_t i = 0; i < layout.gather.size(); ++i) gather_[i] = layout.gather[i].row * row + layout.gather[i].byte;
  pack_.resize(size_t(layout.unit));
  unpack_.resize(size_t(layout.unit));
  for (int to = 0; to < int(layout.bit.size()); ++to) {
    const int from = layout.bit[size_t(to)];
    for (int x = 0; x < 256; ++x) {
      pack_[size_t(from / 8)][size_t(x)] |= uint64_t(x >> from % 8 & 1) << to;
      unpack_[size_t(to / 8)][size_t(x)] |= uint64_t(x >> to % 8 & 1) << from;
    }
  }
}

/// move(offset in the strip, offset in the packed matrix) for every unit of strip tn.
template <class Move>
void Strips::each_unit(int64_t tn, Move move) const {
  // Variables of its own: bytes that are stored might be those of members.
  const int64_t *const from = from_.data(), *const to = layout_.to.data();
  const size_t units = from_.size(), tiles = layout_.along.size();
  const int64_t width = layout_.tile.b, height = layout_.tile.n * layout_.row_grains();
  for (int64_t t = 0; t < tiles_; ++t)
    for (size_t tb = 0; tb < tiles; ++tb) {
      const int64_t first = t * height + int64_t(tb) * width;
      const int64_t stored = layout_.down[size_t(tn * tiles_ + t)] + layout_.along[tb];
      for (size_t u = 0; u < units; ++u) move(first + from[u], stored + to[u]);
    }
}

/// Calls use() with an integer of the size of a unit. Returns false if no integer has this size.
template <class Use>
bool Strips::with_word(Use use) const {
  switch (layout_.unit) {
    case 1:
      return use(uint8_t()), true;
    case 2:
      return use(uint16_t()), true;
    case 4:
      return use(uint32_t()), true;
    case 8:
      return use(uint64_t()), true;
    default:
      return false;
  }
}

/// Copies each unit unchanged from its place in `from` to its place in `to`.
template <class Places>
void Strips::copy_runs(const uint8_t* from, uint8_t* to, int64_t tn, Places places) const {
  if (layout_.grain < 8)
    return each_unit(tn, [=, unit = layout_.unit](int64_t in_strip, int64_t in_packed) {
      auto [at, goes] = places(in_strip, in_packed);
      for (int64_t i = 0; i < unit; ++i, ++at, ++goes) {
        const int shift = int(goes % 2) * 4;
        to[goes / 2] = uint8_t((to[goes / 2] & 0xF0 >> shift) | nibble(from, at) << shift);
      }
    });
  const auto copy = [&](auto bytes) {
    each_unit(tn, [=](int64_t in_strip, int64_t in_packed) {
      const auto [at, goes] = places(in_strip, in_packed);
      std::memcpy(to + goes, from + at, bytes);
    });
  };
  if (with_word([&](auto word) { copy(std::integral_constant<size_t, sizeof(word)>()); })) return;
  if (layout_.unit == 16)
    copy(std::integral_constant<size_t, 16>());
  else
    copy(size_t(layout_.unit));
}

/// The packed unit whose source begins at `from`. Only for units that do not run.
template <class Word>
Word Strips::packed_unit(const Table* tables, const std::array<int64_t, 8>& gather, const uint8_t* from) {
  Word unit = 0;
  for (size_t i = 0; i < sizeof(Word); ++i) unit |= Word(tables[i][from[gather[i]]]);
  return unit;
}

void Strips::pack(const uint8_t* strip, int64_t tn, uint8_t* packed) const {
  for (const int64_t copy : layout_.copy) pack_copy(strip, tn, packed, copy);
}

void Strips::pack_copy(const uint8_t* strip, int64_t tn, uint8_t* packed, int64_t copy) const {
  if (routes_) return driver_.run_route(routes_->pack, strip, packed + first_byte(tn, copy), true);
  if (layout_.runs)
    return copy_runs(strip, packed, tn, [=](int64_t from, int64_t to) { return std::pair(from, to + copy); });
  packed += copy;
  with_word([&](auto word) {
    each_unit(tn, [=, tables = pack_.data(), gather = gather_](int64_t from, int64_t to) {
      const auto unit = packed_unit<decltype(word)>(tables, gather, strip + from);
      std::memcpy(packed + to, &unit, sizeof(unit));
    });
  });
}

void Strips::unpack(const uint8_t* packed, int64_t tn, uint8_t* strip, bool past, CopyReport& copies) const {
  unpack_first(packed, tn, strip, past);
  if (layout_.copies > 1) check_copies(packed, tn, strip, copies);
}

void Strips::unpack_first(const uint8_t* packed, int64_t tn, uint8_t* strip, bool past) const {
  if (routes_) return driver_.run_route(routes_->unpack, packed + first_byte(tn, 0), strip, past);
  if (layout_.runs) return copy_runs(packed, strip, tn, [](int64_t from, int64_t to) { return std::pair(to, from); });
  with_word([&](auto word) {
    each_unit(tn, [=, tables = unpack_.data(), gather = gather_](int64_t from, int64_t to) {
      decltype(word) unit = 0;
      for (size_t i = 0; i < sizeof(unit); ++i) unit |= decltype(word)(tables[i][packed[to + int64_t(i)]]);
      for (size_t i = 0; i < sizeof(unit); ++i) strip[from + gather[i]] = uint8_t(unit >> 8 * i);
    });
  });
}

void Strips::check_copies(const uint8_t* packed, int64_t tn, const uint8_t* strip, CopyReport& report) const {
  if (layout_.grain < 8)
    return each_unit(tn, [&](int64_t from, int64_t to) {
      for (const int64_t copy : layout_.copy)
        for (int64_t i = 0; i < layout_.unit; ++i)
          if (nibble(packed, copy + to + i) != nibble(strip, from + i))
            report.at = report.wrong++ ? std::min(report.at, (copy + to + i) / 2) : (copy + to + i) / 2;
    });
  const auto check = [&](const uint8_t* want, int64_t bytes, int64_t to) {
    for (const int64_t copy : layout_.copy) {
      if (std::memcmp(packed + copy + to, want, size_t(bytes)) == 0) continue;
      for (int64_t i = 0, at = copy + to; i < bytes; ++i, ++at)
        if (packed[at] != want[i]) report.at = report.wrong++ ? std::min(report.at, at) : at;
    }
  };
  if (layout_.runs) return each_unit(tn, [&](int64_t from, int64_t to) { check(strip + from, layout_.unit, to); });
  with_word([&](auto word) {
    each_unit(tn, [&](int64_t from, int64_t to) {
      const auto unit = packed_unit<decltype(word)>(pack_.data(), gather_, strip + from);
      check(reinterpret_cast<const uint8_t*>(&unit), sizeof(unit), to);
    });
  });
}

}  // namespace mxfp4
