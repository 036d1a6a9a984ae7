// The times of a run: seconds of each phase, summed over threads.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <utility>

#include "src/base/elapsed.h"
#include "src/base/json.h"

namespace mxfp4 {

enum class Phase { read, pack, hash, write, sync };

class PhaseTimes {
 public:
  /// Calls work() and adds the time it takes, without that of phases within it; from any thread.
  template <class Work>
  auto time(Phase phase, Work work) {
    struct Clock {
      std::atomic<int64_t>& sum;
      int64_t outer = std::exchange(within_, 0);
      std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
      ~Clock() {
        const int64_t all = (std::chrono::steady_clock::now() - begin).count();
        sum += all - within_;
        within_ = outer + all;
      }
    } const clock{sums_[size_t(phase)]};
    return work();
  }
  /// {"read": 1.25, ..}, with "wall" since this object was made.
  Json seconds() const {
    Json j = Json::object();
    const char* names[] = {"read", "pack", "hash", "write", "sync"};
    for (size_t i = 0; i < sums_.size(); ++i) j[names[i]] = double(sums_[i]) / 1e9;
    j["wall"] = seconds_since(begin_);
    return j;
  }

 private:
  static inline thread_local int64_t within_ = 0;  // of the phase that this thread is in: the time of those within it
  std::array<std::atomic<int64_t>, 5> sums_{};
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace mxfp4
