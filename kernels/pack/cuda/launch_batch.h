// Items sorted into batches, each for one launch of a kernel.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/pack/cuda/batch.h"
#include "kernels/pack/cuda/check.h"
#include "kernels/pack/cuda/planar.cuh"
#include "kernels/pack/cuda/plans.h"

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

using PlanKernel = void (*)(Batch, BlockPlan);

/// Kernels::of<Form, bytes>(): the kernel of a form, for groups of `bytes` bytes.
template <class Kernels>
PlanKernel kernel_of(const BlockPlan& plan) {
  return with_form(plan, [](auto form, auto bytes) -> PlanKernel {
    return Kernels::template of<decltype(form), decltype(bytes)::value>();
  });
}

template <class Kernels>
void launch_all(std::vector<Work> work, Plans& plans, cudaStream_t stream) {
  constexpr size_t beyond = 32;  // bytes behind the last slot that may be read
  for_batches(std::move(work), [&](const Layout& layout, Batch& batch, int items) {
    if (batch.storage.n * batch.storage.b == 0) return;
    const BlockPlan& plan = plans.of(layout, batch.storage, batch.matrix);
    void* arguments[] = {&batch, const_cast<BlockPlan*>(&plan)};
    MXFP4_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_of<Kernels>(plan)),
                                dim3(plan.block_count, 1, unsigned(items)), dim3(plan.threads), arguments,
                                plan.shared_bytes + beyond, stream));
  });
}

}  // namespace mxfp4
