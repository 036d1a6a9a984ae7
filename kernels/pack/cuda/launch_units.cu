#include <bit>

#include "kernels/pack/cuda/launch_units.h"
#include "kernels/pack/cuda/unit.cuh"

namespace mxfp4 {
namespace {

constexpr int threads = 256, per_thread = 4;

/// move(i) for each unit of the thread; blockIdx.z is the item.
template <class Move>
__device__ __forceinline__ void each_unit(const UnitMap& map, Move move) {
  const uint32_t first = blockIdx.x * (threads * per_thread) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < per_thread; ++k)
    if (const uint32_t i = first + k * threads; i < map.count) move(i);
}

template <class Word>
__global__ void __launch_bounds__(threads)
    pack_units_kernel(const __grid_constant__ Batch batch, const __grid_constant__ UnitMap map) {
  each_unit(map, [&](uint32_t i) { pack_unit<Word>(batch, batch.items[blockIdx.z], map, i); });
}

/// Adds to the two of an item, of its pads and of its copies.
struct Found {
  PadFound* pads;
  __device__ static void add(PadFound* to, unsigned long long what) {
    atomicAdd(&to->wrong, 1ull);
    atomicMax(&to->first, ~what);
  }
  __device__ void pad(int64_t place, uint8_t is, uint8_t expected) const {
    add(pads, (unsigned long long)place << 16 | is << 8 | expected);
  }
  __device__ void copy(int64_t place) const { add(pads + 1, (unsigned long long)place << 16); }
};

template <class Word>
__global__ void __launch_bounds__(threads)
    unpack_units_kernel(const __grid_constant__ Batch batch, const __grid_constant__ UnitMap map) {
  const Batch::Item& item = batch.items[blockIdx.z];
  each_unit(map, [&](uint32_t i) { unpack_unit<Word>(batch, item, map, i, Found{item.found}); });
}

using Kernel = void (*)(Batch, UnitMap);

/// kernels: for units of 1, 2, 4 and 8 bytes.
void launch(const Kernel (&kernels)[4], const Batch& batch, const UnitMap& map, int items, cudaStream_t stream) {
  const Kernel kernel = kernels[std::countr_zero(unsigned(map.bytes))];
  const int64_t blocks = (int64_t(map.count) + threads * per_thread - 1) / (threads * per_thread);
  void* arguments[] = {const_cast<Batch*>(&batch), const_cast<UnitMap*>(&map)};
  MXFP4_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(unsigned(blocks), 1, unsigned(items)),
                              dim3(threads), arguments, 0, stream));
}

}  // namespace

void launch_pack_units(const Batch& batch, const UnitMap& map, int items, cudaStream_t stream) {
  launch({pack_units_kernel<uint8_t>, pack_units_kernel<uint16_t>, pack_units_kernel<uint32_t>,
          pack_units_kernel<uint64_t>},
         batch, map, items, stream);
}

void launch_unpack_units(const Batch& batch, const UnitMap& map, int items, cudaStream_t stream) {
  launch({unpack_units_kernel<uint8_t>, unpack_units_kernel<uint16_t>, unpack_units_kernel<uint32_t>,
          unpack_units_kernel<uint64_t>},
         batch, map, items, stream);
}

}  // namespace mxfp4
