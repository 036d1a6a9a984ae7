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

TEST_CASE("every driver makes a layout's bytes by its modes in matrices of many blocks and strips") {
  const auto tables = open_cpu(tables_driver);
  for (const Driver* driver : drivers())
    for (const Layout& layout : layouts)
      for (const Shape s : {Shape{768, 1472}, {1280, 96}, {2304, 4}}) {
        if (!driver->runs_here() || !fits(layout, s)) continue;
        const Shape storage = storage_of(layout, s);
        const ModeLayout modes(storage, modes_of(layout, storage));
        ByModes by;
        by.modes = &modes;
        const auto device = open_cpu(*driver);
        for (const int64_t pads : {0, 1}) {  // without pads, rows are packed from their place
          INFO(driver->name << " " << name_of(layout) << " " << s.n << " x " << s.b << " pads " << pads);
          const Shape real = {s.n - 64 * pads, s.b - pads};
          const auto source = random_bytes(real.n * real.b, uint32_t(s.n + s.b));
          const auto size = size_t(packed_bytes(layout, s));
          std::vector<uint8_t> a(size), b(size), back(source.size());
          auto from = matrix<const uint8_t>(source.data(), real);
          auto to = matrix<uint8_t>(back.data(), real);
          from.padded = to.padded = s;
          const PackItem want{layout, from, a.data()}, got{by, from, b.data()};
          tables->pack({&want, 1});
          device->pack({&got, 1});
          CHECK(a == b);
          const UnpackItem inverse{by, b.data(), to};
          PadReport report;
          device->unpack({&inverse, 1}, {&report, 1});
          CHECK(report.wrong == 0);
          CHECK(back == source);
        }
      }
}

TEST_CASE("shuffles are found at run time where places are sums of bits") {
  const Shape s = {5888, 1536};
  const auto plans = [&](const Modes& modes) { return find_plans(ModeLayout(s, modes), 1, {6, 0}); };
  const auto marlin = plans(modes_of(MarlinCodes{}, s));
  REQUIRE(marlin);
  CHECK(marlin->pack.from.bytes == 64);  // the driver reads and writes whole cache lines
  CHECK(marlin->pack.past_caches);
  CHECK(marlin->pack.before.size() == 1);  // as drawn in mode_plan.h
  CHECK(marlin->pack.after.size() == 3);
  CHECK(marlin->pack.planes.size() == 4);
  const auto transposed = plans({{8, {{0, 1}}}, {5888, {{1, 0}}}, {1536, {{0, 8}}}});
  REQUIRE(transposed);
  CHECK(transposed->pack.after.size() == 6);
  CHECK(transposed->pack.planes.empty());
  CHECK(plans({{4, {{0, 1}}}, {8, {{1, 0}}}, {3072, {{0, 4}}}, {736, {{8, 0}}}}));
  CHECK(plans(modes_of(Plain{}, s)));
  // Bytes in reverse order.
  CHECK(!plans({{8, {{0, 1}}}, {2, {{0, 8}, {0, 0}}}, {768, {{0, 16}}}, {5888, {{1, 0}}}}));
}
