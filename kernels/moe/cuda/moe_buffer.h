// Memory of a GPU with an owner, and the GPU that a thread uses.
#pragma once

#include <utility>

#include "kernels/moe/cuda/moe_launch.h"

namespace mxfp4 {

/// Device memory, freed at the end of its scope.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) { check_cuda(cudaMalloc(&data_, size_t(count) * sizeof(T)), "cudaMalloc"); }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() { cudaFree(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

template <class T>
Buffer<T> to_device(const T* host, int64_t count) {
  Buffer<T> buffer(count);
  check_cuda(cudaMemcpy(buffer.get(), host, size_t(count) * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return buffer;
}

/// The thread's GPU, until the end of a scope.
class SelectedGpu {
 public:
  explicit SelectedGpu(int gpu) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (gpu != before_) check_cuda(cudaSetDevice(gpu), "cudaSetDevice");
    selected_ = gpu;
  }
  SelectedGpu(const SelectedGpu&) = delete;
  ~SelectedGpu() {
    if (selected_ != before_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0, selected_ = 0;
};

}  // namespace mxfp4
