#include "src/device/pipeline.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "src/base/threads.h"
#include "src/io/direct_file.h"

namespace mxfp4 {

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

void run_jobs(int64_t count, int threads, const std::function<void(Worker&, int64_t)>& work,
              const DeviceChoice& devices) {
  const auto workers = int(std::min<int64_t>(thread_count(threads), count));
  const auto take_jobs = [&](Worker& worker, JobQueue& queue, const auto& enough) {
    while (!enough()) {
      const auto job = queue.next();
      if (!job) return;
      work(worker, *job);
    }
  };
  run_threads(count, workers, [&](int index, JobQueue& queue) {
    const bool with_gpu = index < gpu_workers(devices, workers);
    auto opening = std::async(with_gpu ? std::launch::async : std::launch::deferred,
                              [&] { return open_device(devices, index, workers); });
    const auto is_open_in = [&](int milliseconds) {
      return opening.wait_for(std::chrono::milliseconds(milliseconds)) != std::future_status::timeout;
    };
    if (!is_open_in(20)) {
      Worker meanwhile{open_cpu()};
      take_jobs(meanwhile, queue, [&] { return is_open_in(0); });
    }
    Worker worker{opening.get()};
    take_jobs(worker, queue, [] { return false; });
  });
}

}  // namespace mxfp4
