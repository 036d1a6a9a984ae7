#include "kernels/pack/cpu/driver.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/pack/device.h"
#include "tests/support/mode_cases.h"

using namespace mxfp4;

namespace {

template <class T>
BasicMatrix<T> matrix(T* data, Shape s) {
  BasicMatrix<T> m;
  m.view[0] = {data, s.b};
  m.real = m.padded = s;
  return m;
}

}  // namespace

TEST_CASE("every driver packs and unpacks the bytes that the tables do") {
  const auto tables = open_cpu(tables_driver);
  int compared = 0;
  for (const Driver* driver : drivers()) {
    if (!driver->runs_here()) WARN("the driver " << driver->name << " does not run here");
    if (!driver->runs_here() || driver == &tables_driver) continue;
    const auto device = open_cpu(*driver);
    for (const Layout& layout : layouts)
      for (const Shape s : {Shape{128, 64}, {256, 192}, {128, 1472}, {576, 256}, {64, 2}, {64, 4}, {320, 64}}) {
        if (!fits(layout, s)) continue;
        INFO(driver->name << " " << name_of(layout) << " " << s.n << " x " << s.b);
        const auto source = random_bytes(s.n * s.b, uint32_t(s.n + s.b));
        const auto size = size_t(packed_bytes(layout, s));
        std::vector<uint8_t> a(size), b(size), back(source.size());
        const PackItem want{layout, matrix<const uint8_t>(source.data(), s), a.data()};
        const PackItem got{layout, matrix<const uint8_t>(source.data(), s), b.data()};
        tables->pack({&want, 1});
        device->pack({&got, 1});
        CHECK(a == b);
        const UnpackItem inverse{layout, b.data(), matrix<uint8_t>(back.data(), s)};
        PadReport report;
        device->unpack({&inverse, 1}, {&report, 1});
        CHECK(report.wrong == 0);
        CHECK(back == source);
        ++compared;
      }
  }
  const auto runs = [](const Driver* driver) { return driver->runs_here(); };
  CHECK((compared > 50 || std::count_if(drivers().begin(), drivers().end(), runs) == 1));
}

TEST_CASE("every driver packs and unpacks layouts by modes alike") {
  const ModeCases all = all_mode_cases();
  for (const Driver* driver : drivers())
    if (driver->runs_here() && driver != &chosen_driver()) check_cases(*open_cpu(*driver), all.cases, 12);
}

TEST_CASE("shuffles that are found at run time are used where they pay") {
  const Shape s = {5888, 1536};
  const auto windows = [&](const Modes& modes) { return ModePieces(ModeLayout(s, modes)).windows.size(); };
  const auto pays = [&](const Modes& modes) { return ModePieces(ModeLayout(s, modes)).pays(); };
  CHECK(windows(modes_of(MarlinCodes{}, s)) == 8 * 8);  // for each 64 bytes of a tile, of eight rows
  CHECK(pays(modes_of(MarlinCodes{}, s)));
  CHECK(pays({{4, {{0, 1}}}, {8, {{1, 0}}}, {3072, {{0, 4}}}, {736, {{8, 0}}}}));
  CHECK(!pays({{8, {{0, 1}}}, {5888, {{1, 0}}}, {1536, {{0, 8}}}}));  // 64 windows for 64 bytes
  CHECK(!pays(modes_of(Plain{}, s)));
}
