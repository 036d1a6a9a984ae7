#include "src/base/threads.h"

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "src/base/log.h"
#include "src/base/signals.h"

namespace mxfp4 {

int thread_count(int threads) { return threads > 0 ? threads : std::max(1, int(std::thread::hardware_concurrency())); }

std::optional<int64_t> JobQueue::next() {
  if (stop_) return std::nullopt;
  const int64_t job = next_++;
  if (job >= count_) return std::nullopt;
  throw_if_interrupted();
  return job;
}

bool try_to_start(const std::function<void()>& make) {
  try {
    make();
    return true;
  } catch (const std::system_error& e) {
    static std::once_flag said;
    std::call_once(said, [&] { note(fmt::format("fewer threads than asked for: {}", e.code().message())); });
  } catch (const std::bad_alloc&) {  // no memory for another thread; the existing threads continue
  }
  return false;
}

void run_threads(int64_t count, int threads, const std::function<void(int index, JobQueue& queue)>& work) {
  JobQueue queue(count);
  std::exception_ptr first;
  std::mutex mutex;
  const auto run = [&](int index) {
    try {
      work(index, queue);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      queue.stop();
    }
  };
  std::vector<std::thread> pool;
  pool.reserve(size_t(std::max(1, threads)));
  bool can_start = true;
  for (int i = 1; i < threads && can_start; ++i) can_start = try_to_start([&] { pool.emplace_back(run, i); });
  if (threads > 0) run(0);
  for (auto& t : pool) t.join();
  if (first) std::rethrow_exception(first);
}

void run_jobs(int64_t count, int threads, const std::function<void(int64_t job)>& work) {
  const auto workers = int(std::min<int64_t>(thread_count(threads), count));
  run_threads(count, workers, [&](int, JobQueue& queue) {
    while (const auto job = queue.next()) work(*job);
  });
}

}  // namespace mxfp4
