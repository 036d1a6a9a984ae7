// How far a run is, on stderr.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "src/base/elapsed.h"

namespace mxfp4 {

/// The value of MXFP4_PACK_PROGRESS, if set: seconds between two reports. Throws Error{usage} if the value is no valid
/// number.
std::optional<double> progress_seconds();

/// On a terminal, shows a line that fits its width, six times a second; elsewhere a line every 30 seconds.
/// progress_seconds() overrides these times.
class Progress {
 public:
  /// unit: of the count, such as "batches"; empty for bytes, which have a rate and a remaining time.
  Progress(std::string action, int64_t total, std::string unit = {});
  ~Progress();
  /// From any thread. 0 shows that time passes.
  void add(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const { return seconds_since(start_); }
  double rate() const;
  double left() const;
  void show();
  /// The longest of the forms that is no wider than `width`; 0: any width.
  std::string line(int width) const;

  std::string action_, unit_;
  int64_t total_;
  bool shown_;
  Clock::duration pause_;
  std::atomic<int64_t> done_ = 0;
  std::mutex mutex_;  // of next_
  Clock::time_point start_ = Clock::now(), next_;
};

}  // namespace mxfp4
