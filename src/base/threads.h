// Runs jobs on threads. Each free thread claims the next job; the first error or a signal stops all.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

namespace mxfp4 {

/// The number of threads for the option `threads`; 0: one per core.
int thread_count(int threads);

/// The jobs [0, count) that threads share.
class JobQueue {
 public:
  explicit JobQueue(int64_t count) : count_(count) {}
  /// The next job; none if all are taken or one has failed. Throws if a signal is pending.
  std::optional<int64_t> next();
  void stop() { stop_ = true; }

 private:
  const int64_t count_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> stop_ = false;
};

/// Calls work(index, queue) on `threads` threads, including this one, or on fewer if the system starts fewer. They
/// share a queue of `count` jobs. The first exception ends the others after their current job and is thrown here.
void run_threads(int64_t count, int threads, const std::function<void(int index, JobQueue& queue)>& work);

/// Calls work(job) for every job in [0, count) on thread_count(threads) threads, or on fewer if the system starts
/// fewer.
void run_jobs(int64_t count, int threads, const std::function<void(int64_t job)>& work);

/// Starts a thread with make(). If the system refuses, returns false and prints one note per run.
bool try_to_start(const std::function<void()>& make);

}  // namespace mxfp4
