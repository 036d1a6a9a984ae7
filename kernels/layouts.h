// The registry of layouts: one name in the variant each.
#pragma once

#include <string_view>
#include <variant>

#include "kernels/layouts/marlin.h"

namespace mxfp4 {

using Layout = std::variant<MarlinCodes, MarlinScales, MarlinBias>;

inline const char* name_of(const Layout& layout) {
  return std::visit([](auto l) { return decltype(l)::name; }, layout);
}

/// The shape that the layout stores for a matrix of shape s.
inline Shape storage_of(const Layout& layout, Shape s) {
  return std::visit([s](auto l) { return storage<decltype(l)>(s); }, layout);
}

inline bool fits(const Layout& layout, Shape s) {
  return std::visit([s](auto l) { return fits<decltype(l)>(s); }, layout);
}

/// The multiple of rows and bytes that a matrix must have: the tile, unless the layout pads by itself.
inline Shape multiple_of(const Layout& layout) {
  return std::visit(
      [](auto l) {
        using L = decltype(l);
        return Shape{L::store_n % L::tile_n ? L::tile_n : 1, L::store_b % L::tile_b ? L::tile_b : 1};
      },
      layout);
}

inline int64_t packed_bytes(const Layout& layout, Shape s) {
  const Shape p = storage_of(layout, s);
  return p.n * p.b;
}

}  // namespace mxfp4
