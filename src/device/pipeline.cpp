#include "src/device/pipeline.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "src/base/slots.h"
#include "src/base/threads.h"
#include "src/io/direct_file.h"

namespace mxfp4 {

namespace {

/// Opens a GPU on a thread of its own. With a single worker, or if no more threads can start, get() opens it.
std::future<std::unique_ptr<Device>> begin_to_open(const DeviceChoice& devices, int index, int workers) {
  const auto open = [&devices, index, workers] { return open_device(devices, index, workers); };
  std::future<std::unique_ptr<Device>> opening;
  const bool apart = workers > 1 && index < gpu_workers(devices, workers);
  if (!apart || !try_to_start([&] { opening = std::async(std::launch::async, open); }))
    opening = std::async(std::launch::deferred, open);
  return opening;
}

}  // namespace

Buffer::~Buffer() {
  try {
    if (data_) device_->release(data_);
  } catch (const DeviceError&) {  // of an earlier call, which has thrown it: a broken GPU reports it again here
  }
}

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

int worker_count(int threads, int64_t jobs) {
  const int working = thread_count(threads), all = threads == 1 ? 1 : working + std::min(working, 2);
  return int(std::min<int64_t>(all, jobs));
}

void run_jobs(int64_t count, int threads, const std::function<void(Worker&, int64_t)>& work,
              const DeviceChoice& devices) {
  const int workers = worker_count(threads, count);
  const auto take_jobs = [&](Worker& worker, JobQueue& queue, const auto& enough) {
    while (!enough()) {
      const auto job = queue.next();
      if (!job) return;
      work(worker, *job);
    }
  };
  Slots slots(devices.gpus.empty() ? thread_count(threads) : workers);  // a thread that waits for a GPU uses no CPU
  run_threads(count, workers, [&](int index, JobQueue& queue) {
    const Slots::Taken slot(slots);
    auto opening = begin_to_open(devices, index, workers);
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
