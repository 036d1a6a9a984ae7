// Where the time of a run goes: seconds of each stage, summed over threads.
#pragma once

#include <array>
#include <atomic>
#include <chrono>

#include "src/json.h"

namespace mxfp4 {

enum class Stage { read, pack, hash, write, sync };

class Stages {
 public:
  /// Calls work() and adds the time it takes; from any thread.
  template <class Work>
  auto time(Stage stage, Work work) {
    struct Clock {
      std::atomic<int64_t>& sum;
      std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
      ~Clock() { sum += (std::chrono::steady_clock::now() - begin).count(); }
    } const clock{sums_[size_t(stage)]};
    return work();
  }
  /// {"read": 1.25, ..}, with "wall" since this object was made.
  Json seconds() const {
    Json j;
    const char* names[] = {"read", "pack", "hash", "write", "sync"};
    for (size_t i = 0; i < sums_.size(); ++i) j[names[i]] = double(sums_[i]) / 1e9;
    j["wall"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    return j;
  }

 private:
  std::array<std::atomic<int64_t>, 5> sums_{};
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace mxfp4
