#include "kernels/layouts/layouts.h"

namespace mxfp4 {

namespace {

// The proof that every layout is a bijection, made by the compiler once in each build.
template <class L>
constexpr bool is_proved() {
  if constexpr (!is_plain<L>) static_assert(is_bijection<L>(), "bytes are lost, or left unwritten");
  return true;
}

template <class... L>
constexpr bool are_proved(std::variant<L...>*) {
  return (is_proved<L>() && ...);
}

static_assert(are_proved(static_cast<Layout*>(nullptr)));

template <size_t... i>
constexpr auto all_layouts(std::index_sequence<i...>) {
  return std::array{Layout(std::in_place_index<i>)...};
}

}  // namespace

constinit const std::array<Layout, layout_count> layouts = all_layouts(std::make_index_sequence<layout_count>());

const char* name_of(const Layout& layout) {
  return std::visit([](auto l) { return decltype(l)::name; }, layout);
}

std::optional<Layout> find_layout(std::string_view name) {
  for (const Layout& layout : layouts)
    if (name == name_of(layout)) return layout;
  return std::nullopt;
}

Shape storage_of(const Layout& layout, Shape s) {
  if (const auto* given = std::get_if<ByModes>(&layout)) return given->modes->storage;
  return std::visit([s](auto l) { return storage<decltype(l)>(s); }, layout);
}

bool fits(const Layout& layout, Shape s) {
  if (const auto* given = std::get_if<ByModes>(&layout))
    return s.n <= given->modes->storage.n && s.b <= given->modes->storage.b;
  return std::visit([s](auto l) { return fits<decltype(l)>(s); }, layout);
}

Shape multiple_of(const Layout& layout) {
  return std::visit(
      [](auto l) {
        using L = decltype(l);
        return Shape{L::store_n % L::tile_n ? L::tile_n : 1, L::store_b % L::tile_b ? L::tile_b : 1};
      },
      layout);
}

int64_t packed_bytes(const Layout& layout, Shape s) {
  const Shape p = storage_of(layout, s);
  return p.n * p.b * copies_of(layout);
}

int64_t copies_of(const Layout& layout) {
  const auto* given = std::get_if<ByModes>(&layout);
  return given ? given->modes->copies : 1;
}

}  // namespace mxfp4
