// Tests that need a GPU carry the tag [gpu] and begin with `if (no_gpu()) return;`.
#pragma once

#include "kernels/device.h"

namespace mxfp4 {

/// How many tests returned for want of a GPU; main() prints it.
inline int gpu_tests_skipped = 0;

inline bool no_gpu() {
  if (cuda_device_count() > 0) return false;
  ++gpu_tests_skipped;
  return true;
}

}  // namespace mxfp4
