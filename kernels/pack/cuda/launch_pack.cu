#include "kernels/pack/cuda/kernel.cuh"
#include "kernels/pack/cuda/launch.h"
#include "kernels/pack/cuda/launch_batch.h"
#include "kernels/pack/cuda/launch_units.h"
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

}  // namespace

void launch_pack(std::span<const PackItem> items, UnitMaps& maps, cudaStream_t stream) {
  std::vector<Work> work;
  for (const PackItem& item : items) work.push_back({item.layout, writable(item.matrix), item.packed, nullptr});
  for_batches(std::move(work), [&](const Layout& layout, Batch& batch, int count) {
    std::visit(
        [&](auto l) {
          using L = decltype(l);
          if constexpr (std::is_same_v<L, ByModes>) {
            launch_pack_units(batch, maps.of(*l.modes), count, stream);
          } else {
            void (*paired)(Batch) = nullptr;
            if constexpr (BlockSize<L>::can_pair) paired = pack_kernel<L, 2>;
            launch_kernel<L>(pack_kernel<L, 1>, paired, batch, count, stream);
          }
        },
        layout);
  });
}

void pack_on_cuda(int index, std::span<const PackItem> items, void* stream) {
  const Selected selected(index);
  UnitMaps none;
  launch_pack(items, none, static_cast<cudaStream_t>(stream));
}

}  // namespace mxfp4
