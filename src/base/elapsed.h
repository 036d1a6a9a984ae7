// Time that has passed.
#pragma once

#include <chrono>

namespace mxfp4 {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace mxfp4
