#include <catch2/catch.hpp>

#include "src/bench/pack_speed.h"

using namespace mxfp4;

TEST_CASE("bench measures every layout once per packer and number of threads") {
  const std::vector<Layout> some = {*find_layout("marlin.codes"), *find_layout("marlin.scales")};
  const Packer packer{"cpu", [] { return open_cpu(); }};
  const auto speeds = pack_speeds(some, {packer}, {1, 2}, 1);
  REQUIRE(speeds.size() == 4);
  CHECK(speeds[1].layout == "marlin.scales");
  CHECK(speeds[3].threads == 2);
  for (const PackSpeed& s : speeds) CHECK((s.copy > 0 && s.pack > 0 && s.unpack > 0));
  CHECK(median({3, 1, 2}) == 2);
}
