// Jobs on threads that each own a device and its buffers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/device/device_choice.h"

namespace mxfp4 {

/// A buffer of the device's memory that grows and is reused.
class Buffer {
 public:
  explicit Buffer(Device& device) : device_(&device) {}
  Buffer(const Buffer&) = delete;
  ~Buffer();
  /// At least `bytes` bytes, with the position within a page that byte `offset` of a file has. The contents are lost if
  /// the buffer grows.
  uint8_t* reserve(int64_t bytes, int64_t offset = 0);

 private:
  Device* device_;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// The resources of one thread of a pipeline.
struct Worker {
  std::unique_ptr<Device> device;
  Buffer source{*device}, canonical{*device}, packed{*device}, other{*device};
};

/// The number of threads for jobs that read, pack and write; at most `jobs`. `threads` of them work at once (0: one for
/// each core). Up to two more work while others wait for the disk, which keeps a disk as busy as io_uring does. With 1
/// there is only one thread.
int worker_count(int threads, int64_t jobs = INT64_MAX);

/// Calls work(worker, job) for every job in [0, count) on worker_count(threads, count) threads. The first exception
/// ends the others after their current job and is thrown here; so is a pending signal. With several threads, until a
/// GPU is ready, which takes a tenth of a second the first time, its threads work with the CPU.
void run_jobs(int64_t count, int threads, const std::function<void(Worker&, int64_t)>& work,
              const DeviceChoice& devices = {});

}  // namespace mxfp4
