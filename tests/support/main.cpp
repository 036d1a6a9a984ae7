#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "kernels/pack/device.h"

namespace {

int gpu_tests = 0;

/// Counts the tests with the tag [gpu] that ran; each returns at once where there is no device.
struct GpuTests : Catch::TestEventListenerBase {
  using Base = Catch::TestEventListenerBase;
  using Base::Base;
  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    gpu_tests += test.tagsAsString().find("[gpu]") != std::string::npos;
  }
};
CATCH_REGISTER_LISTENER(GpuTests)

}  // namespace

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  if (gpu_tests && mxfp4::cuda_device_count() == 0)
    std::printf("%d GPU tests skipped: %s\n", gpu_tests, mxfp4::cuda_description().c_str());
  return failed;
}
