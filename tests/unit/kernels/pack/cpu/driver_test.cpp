#include "kernels/pack/cpu/driver.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "kernels/pack/cpu/straight.h"
#include "kernels/pack/device.h"
#include "tests/bench/bench_rows.h"
#include "tests/support/mode_cases.h"
#include "tests/support/random_modes.h"

using namespace mxfp4;

namespace {

template <class T>
BasicMatrix<T> matrix(T* data, Shape s) {
  BasicMatrix<T> m;
  m.view[0] = {data, s.b};
  m.real = m.padded = s;
  return m;
}

/// Packs word by word, by a layout's three functions.
template <class L>
std::vector<uint8_t> defined(const std::vector<uint8_t>& rows, Shape s) {
  if constexpr (is_plain<L>) {
    return rows;
  } else {
    std::vector<uint8_t> packed(rows.size());
    for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn)
      for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb)
        for (int w = 0; w < words_per_tile<L>; ++w) {
          uint32_t gathered = 0, word = 0;
          for (int i = 0; i < 4; ++i) {
            const Byte b = L::at(w, i);
            gathered |= uint32_t(rows[size_t((tn * L::tile_n + b.n) * s.b + tb * L::tile_b + b.b)]) << 8 * i;
          }
          for (int i = 0; i < 32; ++i) word |= (gathered >> bit_of<L>(i) & 1) << i;
          std::memcpy(&packed[size_t(L::offset(s, tn, tb, w))], &word, 4);
        }
    return packed;
  }
}

/// Packs the first `real` of rows of s bytes, and unpacks them again.
void check_driver(const Driver& driver, const Layout& layout, const std::vector<uint8_t>& rows, Shape s, Shape real) {
  std::vector<uint8_t> want = rows, source, got(rows.size()), back(size_t(real.n * real.b));
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t b = 0; b < s.b; ++b) {
      if (n >= real.n || b >= real.b) want[size_t(n * s.b + b)] = 0;
      if (n < real.n && b < real.b) source.push_back(rows[size_t(n * s.b + b)]);
    }
  want = std::visit([&](auto l) { return defined<decltype(l)>(want, s); }, layout);
  auto from = matrix<const uint8_t>(source.data(), real);
  auto to = matrix<uint8_t>(back.data(), real);
  from.padded = to.padded = s;
  const auto device = open_cpu(driver);
  const PackItem item{layout, from, got.data()};
  device->pack({&item, 1});
  CHECK(got == want);
  const UnpackItem inverse{layout, want.data(), to};
  PadReport report;
  device->unpack({&inverse, 1}, {&report, 1});
  CHECK(report.wrong == 0);
  CHECK(back == source);
}

constexpr VectorForm zips = {4, 4, Mixing::cheapest, false, 4, 4, 4};  // NEON's

std::optional<Routes> routes_of(const ModeLayout& layout, VectorForm form) {
  return find_routes(layout, numbers_of(layout), form);
}

}  // namespace

TEST_CASE("every driver packs and unpacks the bytes that a layout's definition says") {
  int compared = 0;
  for (const Driver* driver : drivers()) {
    if (!driver->runs_here()) WARN("the driver " << driver->name << " does not run here");
    for (const Layout& layout : layouts)
      for (const Shape s : {Shape{128, 64},
                            {256, 192},
                            {128, 1472},
                            {576, 256},
                            {64, 2},
                            {64, 4},
                            {320, 64},
                            {768, 1472},
                            {1280, 96},
                            {2304, 4},
                            {96, 24},
                            {2880, 90}}) {
        if (!driver->runs_here() || !fits(layout, s)) continue;
        INFO(driver->name << " " << name_of(layout) << " " << s.n << " x " << s.b);
        const Shape storage = storage_of(layout, s);
        const auto rows = random_bytes(storage.n * storage.b, uint32_t(s.n + s.b));
        if (storage == s) check_driver(*driver, layout, rows, s, s);  // rows are packed from their place
        check_driver(*driver, layout, rows, storage, {s.n - 1, s.b - 1});
        ++compared;
      }
  }
  CHECK(compared > 200);
  const Shape large = {max_side * 2, 1};  // only files have limits
  check_driver(chosen_driver(), MarlinScales{}, random_bytes(large.n, 1), large, large);
}

TEST_CASE("every driver packs and unpacks layouts by modes alike") {
  const ModeCases all = all_mode_cases();
  for (const Driver* driver : drivers())
    if (driver->runs_here() && driver != &chosen_driver()) check_cases(*open_cpu(*driver), all.cases, 12);
}

TEST_CASE("every driver packs and unpacks layouts of random digits as these say, bit by bit") {
  std::mt19937 random(1);
  int packed = 0, routes = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto next = [&](size_t n) { return size_t(random() % n); };
    const auto [storage, modes] = made_modes(next);
    INFO(i << ": " << storage.n << " x " << storage.b);
    const auto right = try_modes(storage, modes, i % 2 ? made_pads(next, storage) : MadePads{storage});
    CHECK(right != false);
    packed += right.has_value();
    if (right) routes += routes_of(ModeLayout(storage, modes), {4, 4}).has_value();
  }
  CHECK(packed > 300);
  CHECK(routes > 100);
}

TEST_CASE("NEON has straight code for the steps of every built-in layout") {
  for (const Row& row : rows_of({"", 1, 2944, 3072, 5888, 3072, false}, ".")) {
    const auto routes = row.modes ? routes_of(*row.modes, zips) : std::nullopt;
    if (!routes) continue;
    CHECK(routes->pack.passes.size() + routes->unpack.passes.size() == 2);
    for (const Route* route : {&routes->pack, &routes->unpack})
      for (const Route::Pass& pass : route->passes) {
        const std::vector<int> codes = codes_of(pass);
        CAPTURE(codes);
        const bool is_straight = [&]<class... S>(std::tuple<S...>*) {
          return (std::ranges::equal(codes, S::code) || ...);
        }(static_cast<NeonSteps*>(nullptr));
        CHECK(is_straight);
      }
  }
}

TEST_CASE("a route has the exchanges that are drawn in route.h") {
  const Shape s = {5888, 1536};
  const auto routes = [&](const Modes& modes) { return routes_of(ModeLayout(s, modes), {6, 6}); };
  constexpr int slots = Route::most_slots;
  const auto codes = [](const Route& route) {
    std::vector<int> all;
    for (const Route::Pass& pass : route.passes)
      for (const Route::Step& step : pass.steps) all.push_back(step.code);
    return all;
  };
  const auto marlin = routes(modes_of(MarlinCodes{}, s));
  REQUIRE(marlin);
  CHECK(marlin->pack.passes[0].from.pieces == 1);  // the driver reads and writes whole cache lines
  CHECK(marlin->pack.from.at.empty());
  CHECK(marlin->pack.past_caches);
  CHECK(marlin->pack.passes.size() == 1);
  const std::vector<int> exchanges = codes(marlin->pack);
  REQUIRE(exchanges.size() == 6);
  CHECK(exchanges[0] == 3 * slots);  // column 8
  CHECK(exchanges[1] == 0);          // the nibble
  CHECK(exchanges[2] == 4 * slots);  // column 16
  CHECK(exchanges[3] == 5 * slots + 1);
  CHECK(exchanges[4] == 6 * slots + 2);
  CHECK(exchanges.back() == Route::sort);
  CHECK(codes(routes(modes_of(FlashinferSm90V2Codes{}, s))->pack)[1] == Route::mix_4);
  const auto transposed = routes({{8, {{0, 1}}}, {5888, {{1, 0}}}, {1536, {{0, 8}}}});
  REQUIRE(transposed);
  CHECK(codes(transposed->pack).size() == 6);
  CHECK(transposed->pack.passes.size() == 2);
  CHECK(routes({{4, {{0, 1}}}, {8, {{1, 0}}}, {3072, {{0, 4}}}, {736, {{8, 0}}}}));
  CHECK(routes(modes_of(Plain{}, s)));
  // Without a sort each exchange but one of a cycle brings a bit to its own lane.
  const VectorForm words = {4, 0, Mixing::shifts};
  const auto by_words = routes_of(ModeLayout(s, modes_of(MarlinCodes{}, s)), words);
  REQUIRE(by_words);
  CHECK(codes(by_words->pack).size() == 5);
  // Planes exchange nibbles, then zips bring planes to the bytes of words.
  const auto zipped = routes_of(ModeLayout(s, modes_of(FlashinferSm90V2Codes{}, s)), zips);
  REQUIRE(zipped);
  CHECK(codes(zipped->pack) ==
        std::vector<int>{3 * slots, Route::mix_4, 1, Route::zip + slots + 1, Route::zip + slots});
  // Bytes in reverse order.
  CHECK(!routes({{8, {{0, 1}}}, {2, {{0, 8}, {0, 0}}}, {768, {{0, 16}}}, {5888, {{1, 0}}}}));
}
