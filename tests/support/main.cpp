#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/pack/device.h"

namespace {

int gpu_tests = 0;
std::vector<std::string> failed_tests;

/// Counts the executed tests with the tag [gpu]; without a device, each of them returns immediately. Lists failed tests
/// again at the end.
struct Listener : Catch::TestEventListenerBase {
  using Base = Catch::TestEventListenerBase;
  using Base::Base;
  std::string name;
  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    gpu_tests += test.tagsAsString().find("[gpu]") != std::string::npos;
    name = test.name;
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!stats.totals.assertions.allPassed()) failed_tests.push_back(name);
  }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  if (gpu_tests && mxfp4::cuda_device_count() == 0)
    std::printf("%d GPU tests skipped: %s\n", gpu_tests, mxfp4::cuda_description().c_str());
  for (const std::string& name : failed_tests) std::printf("failed: %s\n", name.c_str());
  return failed;
}
