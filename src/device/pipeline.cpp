#include "src/device/pipeline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <mutex>
#include <thread>

#include "src/base/error.h"
#include "src/io/direct_file.h"

namespace mxfp4 {

namespace {

volatile std::sig_atomic_t signal_number = 0;
void on_signal(int number) { signal_number = number; }

}  // namespace

uint8_t* Buffer::reserve(int64_t bytes, int64_t offset) {
  const int64_t first = offset % DirectFile::page;
  bytes += first;
  if (bytes > bytes_) {
    if (data_) device_->release(data_);
    data_ = nullptr;
    data_ = device_->allocate(bytes);
    bytes_ = bytes;
  }
  return data_ + first;
}

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int pending_signal() { return signal_number; }

void throw_if_interrupted() {
  if (signal_number) fail(Kind::interrupted, "interrupted by signal {}", int(signal_number));
}

int thread_count(int threads) { return threads > 0 ? threads : std::max(1, int(std::thread::hardware_concurrency())); }

void run_jobs(int64_t count, int threads, const std::function<void(Worker&, int64_t)>& work,
              const DeviceChoice& devices) {
  std::atomic<int64_t> next = 0;
  std::atomic<bool> stop = false;
  std::exception_ptr first;
  std::mutex mutex;
  const auto workers = int(std::min<int64_t>(thread_count(threads), count));
  const auto take_jobs = [&](Worker& worker, const auto& enough) {
    for (int64_t job; !stop && !enough() && (job = next++) < count;) {
      throw_if_interrupted();
      work(worker, job);
    }
  };
  const auto run = [&](int index) {
    try {
      const bool with_gpu = index < gpu_workers(devices, workers);
      auto opening = std::async(with_gpu ? std::launch::async : std::launch::deferred,
                                [&] { return open_device(devices, index, workers); });
      const auto is_open_in = [&](int milliseconds) {
        return opening.wait_for(std::chrono::milliseconds(milliseconds)) != std::future_status::timeout;
      };
      if (!is_open_in(20)) {
        Worker meanwhile{open_cpu()};
        take_jobs(meanwhile, [&] { return is_open_in(0); });
      }
      Worker worker{opening.get()};
      take_jobs(worker, [] { return false; });
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      stop = true;
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < workers; ++i) pool.emplace_back(run, i);
  if (workers > 0) run(0);
  for (auto& t : pool) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace mxfp4
