#include "kernels/pack/cuda/launch.h"
#include "kernels/pack/cuda/launch_batch.h"

namespace mxfp4 {
namespace {

constexpr int threads = 256;

/// blockIdx.y: the item, blockIdx.z: the view. The threads of an item go through its rows in aligned chunks of 16
/// bytes; a row touches at most width / 16 + 2 of them. Item::found: two, one per view.
__global__ void __launch_bounds__(threads) compare_kernel(const __grid_constant__ Batch batch, int64_t expected_at) {
  const int64_t width = batch.matrix.real.b, chunks = width / 16 + 2, count = batch.matrix.real.n * chunks;
  const uint8_t* const rows = batch.items[blockIdx.y].view[blockIdx.z];
  PadFound* const found = batch.items[blockIdx.y].found + blockIdx.z;
  for (int64_t i = blockIdx.x * int64_t(threads) + threadIdx.x; i < count; i += int64_t(gridDim.x) * threads) {
    const int64_t n = i / chunks;
    const uint8_t* const row = rows + n * batch.matrix.view[blockIdx.z].stride;
    const uint8_t* const chunk = row - reinterpret_cast<uintptr_t>(row) % 16 + i % chunks * 16;
    if (chunk >= row + width) continue;
    const uint4 x = *reinterpret_cast<const uint4*>(chunk), y = *reinterpret_cast<const uint4*>(chunk + expected_at);
    if (x.x == y.x && x.y == y.y && x.z == y.z && x.w == y.w) continue;
    for (int j = 0; j < 16; ++j) {
      const int64_t b = chunk + j - row;
      if (b < 0 || b >= width || chunk[j] == chunk[expected_at + j]) continue;
      atomicAdd(&found->wrong, 1ull);
      atomicMax(&found->first, ~((unsigned long long)(n * width + b) << 16));
    }
  }
}

}  // namespace

void launch_compare(std::span<const UnpackItem> items, int64_t expected_at, PadFound* found, cudaStream_t stream) {
  std::vector<Work> work;
  for (const UnpackItem& item : items) {
    work.push_back({item.layout, item.matrix, nullptr, found});
    found += 2;
  }
  for_batches(std::move(work), [&](const Layout&, Batch& batch, int count) {
    const MutableMatrix& m = batch.matrix;
    const int64_t blocks = (m.real.n * (m.real.b / 16 + 2) + threads - 1) / threads;
    if (m.real.n * m.real.b == 0) return;
    void* arguments[] = {&batch, &expected_at};
    MXFP4_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(compare_kernel),
                                dim3(unsigned(std::min<int64_t>(blocks, 4096)), unsigned(count), unsigned(m.views)),
                                dim3(threads), arguments, 0, stream));
  });
}

ViewReport view_report(const PadFound& found, int64_t width) {
  if (found.wrong == 0) return {};
  const int64_t place = int64_t(~found.first >> 16);
  return {int64_t(found.wrong), place / width, place % width};
}

}  // namespace mxfp4
