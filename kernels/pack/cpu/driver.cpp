#include "kernels/pack/cpu/driver.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/pack/cpu/strip.h"

namespace mxfp4 {

namespace {

template <class L>
constexpr PackStrip pack_tables() {
  if constexpr (is_plain<L>)
    return nullptr;
  else
    return pack_strip_tables<L>;
}

template <class L>
constexpr UnpackStrip unpack_tables() {
  if constexpr (is_plain<L>)
    return nullptr;
  else
    return unpack_strip_tables<L>;
}

template <size_t... i>
constexpr Driver make_tables(std::index_sequence<i...>) {
  return {"tables",
          [] { return true; },
          {pack_tables<std::variant_alternative_t<i, Layout>>()...},
          {unpack_tables<std::variant_alternative_t<i, Layout>>()...}};
}

/// The driver, with the functions of tables_driver for layouts that it does not support.
Driver completed(Driver d) {
  for (size_t i = 0; i < d.pack.size(); ++i)
    if (!d.pack[i]) {
      d.pack[i] = tables_driver.pack[i];
      d.unpack[i] = tables_driver.unpack[i];
    }
  return d;
}

const Driver& choose() {
  const char* wanted = std::getenv("MXFP4_PACK_DRIVER");
  std::string names;
  for (const Driver* d : drivers()) {
    if (wanted && *wanted ? std::string_view(wanted) == d->name && d->runs_here() : d->runs_here()) return *d;
    names += names.empty() ? d->name : std::string(", ") + d->name;
  }
  throw std::runtime_error(std::string("MXFP4_PACK_DRIVER: '") + wanted + "' does not run here; the drivers are " +
                           names);
}

}  // namespace

constinit const Driver tables_driver = make_tables(std::make_index_sequence<std::variant_size_v<Layout>>());

const std::vector<const Driver*>& drivers() {
#if defined(__x86_64__)
  static const Driver avx512 = completed(avx512_driver);
  static const Driver avx2 = completed(avx2_driver);
  static const std::vector<const Driver*> all = {&avx512, &avx2, &tables_driver};
#elif defined(__aarch64__)
  static const Driver sve = completed(sve_driver);
  static const Driver neon = completed(neon_driver);
  static const std::vector<const Driver*> all = {&sve, &neon, &tables_driver};
#else
  static const std::vector<const Driver*> all = {&tables_driver};
#endif
  return all;
}

const Driver& chosen_driver() {
  static const Driver& driver = choose();
  return driver;
}

}  // namespace mxfp4
