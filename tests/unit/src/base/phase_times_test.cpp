// The times of a run's phases.
#include "src/base/phase_times.h"

#include <catch2/catch.hpp>
#include <thread>

using namespace mxfp4;

TEST_CASE("a stage's time is without that of phases within it, and what returns is passed on") {
  const auto sleep = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  PhaseTimes phases;
  const int result = phases.time(Phase::read, [&] {
    sleep(20);
    for (int i = 0; i < 2; ++i) phases.time(Phase::hash, [&] { sleep(30); });
    return 7;
  });
  phases.time(Phase::write, [&] { sleep(10); });
  const Json j = phases.seconds();
  CHECK(result == 7);
  CHECK(j["hash"].get<double>() >= 0.06);
  CHECK(j["read"].get<double>() >= 0.02);
  CHECK(j["write"].get<double>() >= 0.01);
  CHECK(j["pack"] == 0.0);
  const double sum = j["read"].get<double>() + j["hash"].get<double>() + j["write"].get<double>();
  CHECK(sum <= j["wall"].get<double>());
}
