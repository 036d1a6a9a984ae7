// Copies to a GPU on a stream of their own.
#include <cstring>

#include "kernels/pack/cuda/check.h"
#include "kernels/pack/upload.h"

namespace mxfp4 {

namespace {

/// Memory in large pages that are already allocated: while CUDA locks pages, no other thread can allocate GPU memory.
std::shared_ptr<uint8_t> touched_memory(int64_t bytes) {
  const std::shared_ptr<Device> host = open_cpu();
  std::shared_ptr<uint8_t> memory(host->allocate(bytes), [host](uint8_t* m) { host->release(m); });
  std::memset(memory.get(), 0, size_t(bytes));
  return memory;
}

class CudaUpload final : public Upload {
 public:
  CudaUpload(int gpu, int64_t bytes) : bytes_(bytes), memory_(touched_memory(buffers * bytes)) {
    MXFP4_CUDA(cudaSetDevice(gpu));
    MXFP4_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& copied : copied_)
      MXFP4_CUDA(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming | cudaEventBlockingSync));
    // Copies from memory that cannot be locked work as well, but are slow.
    locked_ = cudaHostRegister(memory_.get(), size_t(buffers * bytes_), cudaHostRegisterPortable) == cudaSuccess;
    if (!locked_) cudaGetLastError();  // it is handled: leave no error behind
  }
  ~CudaUpload() override {
    cudaStreamSynchronize(stream_);
    if (locked_) cudaHostUnregister(memory_.get());
    for (cudaEvent_t copied : copied_) cudaEventDestroy(copied);
    cudaStreamDestroy(stream_);
  }

  uint8_t* buffer(int index) override { return memory_.get() + index * bytes_; }

  void copy(int index, uint8_t* to, int64_t bytes) override {
    MXFP4_CUDA(cudaMemcpyAsync(to, buffer(index), size_t(bytes), cudaMemcpyDefault, stream_));
    MXFP4_CUDA(cudaEventRecord(copied_[index], stream_));
  }

  void wait(int index) override { MXFP4_CUDA(cudaEventSynchronize(copied_[index])); }

 private:
  int64_t bytes_;
  std::shared_ptr<uint8_t> memory_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t copied_[buffers] = {};
  bool locked_ = false;
};

}  // namespace

std::unique_ptr<Upload> open_upload(int gpu, int64_t buffer_bytes) {
  check_cuda(gpu);
  return std::make_unique<CudaUpload>(gpu, buffer_bytes);
}

}  // namespace mxfp4
