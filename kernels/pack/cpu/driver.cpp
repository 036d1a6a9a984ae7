#include "kernels/pack/cpu/driver.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mxfp4 {

namespace {

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

const std::vector<const Driver*>& drivers() {
#if defined(__x86_64__)
  static const std::vector<const Driver*> all = {&avx512_driver, &avx2_driver, &tables_driver};
#elif defined(__aarch64__)
  static const std::vector<const Driver*> all = {&neon_driver, &tables_driver};
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
