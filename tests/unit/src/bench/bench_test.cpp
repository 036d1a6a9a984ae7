#include <catch2/catch.hpp>

#include "src/bench/disk_speed.h"
#include "src/bench/pack_speed.h"
#include "src/bench/predict.h"
#include "tests/support/temp_dir.h"

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

TEST_CASE("bench's files are gone afterwards") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "here");
  for (const int threads : {1, 2, 5}) {  // 3 blocks of one file, of two, and of three
    const DiskSpeed speed = disk_speed(dir / "here", (24 << 20) + 5, threads);
    CHECK(speed.bytes == 24 << 20);
    CHECK((speed.read > 0 && speed.write > 0 && speed.both > 0));
    CHECK(std::filesystem::is_empty(dir / "here"));
  }
}

TEST_CASE("a conversion takes as long as the slower of disk and processor") {
  const Rates rates{.disk = {.bytes = 0, .write = 50, .read = 100, .both = 80}, .pack = 10, .hash = 1000};
  const RunTime time = predict(rates, {.read = 1000, .packed = 800, .written = 1500});
  CHECK(time.disk == Approx(2500.0 / 80));
  CHECK(time.processor == Approx(80 + 2.5));
  CHECK(time.total() == time.processor);
  CHECK(std::string(time.bound()) == "processor");
}
