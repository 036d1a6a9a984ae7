#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "tests/gpu.h"

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  if (mxfp4::gpu_tests_skipped)
    std::printf("%d GPU tests skipped: %s\n", mxfp4::gpu_tests_skipped, mxfp4::cuda_description().c_str());
  return failed;
}
