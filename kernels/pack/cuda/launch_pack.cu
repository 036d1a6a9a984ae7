#include <mutex>

#include "kernels/pack/cuda/kernel.cuh"
#include "kernels/pack/cuda/launch.h"
#include "kernels/pack/cuda/launch_batch.h"
#include "kernels/pack/resident.h"

namespace mxfp4 {
namespace {

MutableMatrix writable(const Matrix& m) {
  MutableMatrix w{{}, m.views, m.real, m.padded, m.order, m.pad, m.add};
  for (int v = 0; v < m.views; ++v) w.view[v] = {const_cast<uint8_t*>(m.view[v].data), m.view[v].stride};
  return w;
}

/// The thread's GPU, until the end of a scope.
class Selected {
 public:
  explicit Selected(int index) {
    MXFP4_CUDA(cudaGetDevice(&before_));
    MXFP4_CUDA(cudaSetDevice(index));
  }
  ~Selected() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

struct Kernels {
  template <class Form, int bytes>
  static PlanKernel of() {
    return pack_kernel<Form, bytes>;
  }
};

}  // namespace

void launch_pack(std::span<const PackItem> items, Plans& plans, cudaStream_t stream) {
  std::vector<Work> work;
  for (const PackItem& item : items) work.push_back({item.layout, writable(item.matrix), item.packed, nullptr});
  launch_all<Kernels>(std::move(work), plans, stream);
}

struct Resident::Maps {
  std::mutex mutex;
  std::map<int, Plans> of_gpu;
};

Resident::Resident() : maps_(std::make_unique<Maps>()) {}

Resident::~Resident() {
  if (maps_->of_gpu.empty()) return;  // nothing asks for a GPU, which may be missing
  int before = 0;
  cudaGetDevice(&before);
  for (const auto& [gpu, maps] : maps_->of_gpu) {
    cudaSetDevice(gpu);
    cudaDeviceSynchronize();
  }
  cudaSetDevice(before);
}

void Resident::pack(int index, std::span<const PackItem> items, void* stream) {
  const Selected selected(index);
  const std::lock_guard lock(maps_->mutex);
  launch_pack(items, maps_->of_gpu[index], static_cast<cudaStream_t>(stream));
}

}  // namespace mxfp4
