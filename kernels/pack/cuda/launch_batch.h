// Items sorted into batches, each for one launch of a kernel that the caller instantiates per layout.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/pack/cuda/batch.h"
#include "kernels/pack/cuda/block.cuh"
#include "kernels/pack/cuda/check.h"
#include "kernels/pack/cuda/launch_units.h"
#include "kernels/pack/cuda/unit_maps.h"

namespace mxfp4 {

struct Work {
  Layout layout;
  MutableMatrix matrix;
  uint8_t* packed;
  PadFound* found;
};

inline bool is_same(const Layout& a, const Layout& b) {
  const auto *x = std::get_if<ByModes>(&a), *y = std::get_if<ByModes>(&b);
  return a.index() == b.index() && (!x || x->modes == y->modes);
}

inline bool same_but_for_pointers(const Work& x, const Work& y) {
  const MutableMatrix &a = x.matrix, &b = y.matrix;
  return is_same(x.layout, y.layout) && a.views == b.views && a.view[0].stride == b.view[0].stride &&
         (a.views == 1 || a.view[1].stride == b.view[1].stride) && a.real == b.real && a.padded == b.padded &&
         a.order == b.order && a.pad == b.pad && a.add == b.add;
}

using BlockKernel = void (*)(Batch);

/// For layouts that is_regular() holds for; a test says that it does for all. kernel: of blocks of one part; of two,
/// or null.
template <class L>
void launch_kernel(BlockKernel kernel, BlockKernel paired, Batch& batch, int items, cudaStream_t stream) {
  using Size = BlockSize<L>;
  batch.interleave = interleave_of<L>(batch.matrix);
  const int64_t first =
      batch.interleave.half ? batch.interleave.half : batch.storage.n;  // rows of the blocks' first parts
  const int64_t down = round_up(first, Size::rows) / Size::rows;
  const int64_t across = round_up(batch.storage.b, Size::cols) / Size::cols;
  if (down * across == 0) return;
  if (batch.interleave.half) kernel = paired;
  void* arguments[] = {&batch};
  MXFP4_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                              dim3(unsigned(across), unsigned(down), unsigned(items)), dim3(Size::threads), arguments,
                              0, stream));
}

/// launch(layout, batch, items): called for each batch.
template <class Launch>
void for_batches(std::vector<Work> work, Launch launch) {
  const auto batch = std::make_unique<Batch>();
  while (!work.empty()) {
    const Work first = work.front();
    std::vector<Work> rest;
    int items = 0;
    for (const Work& w : work)
      if (items < Batch::max_items && same_but_for_pointers(first, w))
        batch->items[items++] = {{w.matrix.view[0].data, w.matrix.view[1].data}, w.packed, w.found};
      else
        rest.push_back(w);
    batch->matrix = first.matrix;
    batch->storage = storage_of(first.layout, first.matrix.padded);
    launch(first.layout, *batch, items);
    work = std::move(rest);
  }
}

/// Kernels has block<L, n>(), the kernel of a layout for blocks of n parts, and units(), which launches a layout by
/// modes.
template <class Kernels>
void launch_all(std::vector<Work> work, UnitMaps& maps, cudaStream_t stream) {
  for_batches(std::move(work), [&](const Layout& layout, Batch& batch, int count) {
    std::visit(
        [&](auto l) {
          using L = decltype(l);
          if constexpr (std::is_same_v<L, ByModes>) {
            Kernels::units(batch, maps.of(*l.modes), count, stream);
          } else {
            BlockKernel paired = nullptr;
            if constexpr (BlockSize<L>::can_pair) paired = Kernels::template block<L, 2>();
            launch_kernel<L>(Kernels::template block<L, 1>(), paired, batch, count, stream);
          }
        },
        layout);
  });
}

}  // namespace mxfp4
