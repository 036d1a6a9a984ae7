// Where the time of a run goes.
#include "src/base/stages.h"

#include <catch2/catch.hpp>
#include <thread>

using namespace mxfp4;

TEST_CASE("a stage's time is without that of stages within it, and what returns is passed on") {
  const auto sleep = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  Stages stages;
  const int result = stages.time(Stage::read, [&] {
    sleep(20);
    for (int i = 0; i < 2; ++i) stages.time(Stage::hash, [&] { sleep(30); });
    return 7;
  });
  stages.time(Stage::write, [&] { sleep(10); });
  const Json j = stages.seconds();
  CHECK(result == 7);
  CHECK(j["hash"].get<double>() >= 0.06);
  CHECK(j["read"].get<double>() >= 0.02);
  CHECK(j["write"].get<double>() >= 0.01);
  CHECK(j["pack"] == 0.0);
  const double sum = j["read"].get<double>() + j["hash"].get<double>() + j["write"].get<double>();
  CHECK(sum <= j["wall"].get<double>());
}
