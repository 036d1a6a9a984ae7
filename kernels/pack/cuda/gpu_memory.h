// The memory of one GPU among the Devices of this process, which are on threads of their own.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "kernels/pack/cuda/check.h"

namespace mxfp4 {

class GpuMemory {
 public:
  /// The object of GPU `index`.
  static GpuMemory& of(int index) {
    static std::mutex mutex;
    static std::map<int, GpuMemory> all;
    const std::lock_guard lock(mutex);
    return all[index];
  }

  /// cudaMalloc on the current GPU; null if memory is short.
  uint8_t* allocate(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    uint8_t* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, size_t(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is handled: leave no error behind
      short_ = true;
      return nullptr;
    }
    check_device(error, "cudaMalloc");
    ++held_;
    return memory;
  }

  void free(uint8_t* memory) {
    if (!memory) return;
    const std::lock_guard lock(mutex_);
    cudaFree(memory);
    --held_;
    ++frees_;
    freed_.notify_all();
  }

  /// Whether memory was too short once. If so, Devices keep no memory between calls.
  bool is_short() {
    const std::lock_guard lock(mutex_);
    return short_;
  }

  int64_t frees() {
    const std::lock_guard lock(mutex_);
    return frees_;
  }
  /// Waits until there are more frees than `before`. To be called by a Device that holds no memory. Returns false if no
  /// Device holds memory.
  bool wait_for_free(int64_t before) {
    std::unique_lock lock(mutex_);
    if (frees_ == before && held_ == 0) return false;
    freed_.wait(lock, [&] { return frees_ != before; });
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  int64_t held_ = 0, frees_ = 0;
  bool short_ = false;
};

}  // namespace mxfp4
