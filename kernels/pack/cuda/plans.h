// The plans of layouts in a GPU's memory. Each is made and copied there at its first use.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <tuple>

#include "kernels/layouts/layouts.h"
#include "kernels/pack/cuda/block_plan.h"
#include "kernels/pack/cuda/check.h"

namespace mxfp4 {

/// The plans on one GPU: the thread's current one when of() is called. Layouts by modes are identified by their
/// addresses.
class Plans {
 public:
  const BlockPlan& of(const Layout& layout, Shape storage, const MutableMatrix& m) {
    const auto* given = std::get_if<ByModes>(&layout);
    const Key key{layout.index(), given ? given->modes : nullptr,
                  storage.n,      storage.b,
                  m.padded.n,     m.real.b,
                  m.views,        m.view[0].stride,
                  m.order.block,  m.order.up_first};
    Held& held = held_[key];
    if (!held.slots) held.bring(layout, storage, m);
    return held.plan;
  }

 private:
  using Key = std::tuple<size_t, const ModeLayout*, int64_t, int64_t, int64_t, int64_t, int, int64_t, int64_t, bool>;
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  template <class T>
  using Memory = std::unique_ptr<T, Free>;

  template <class T>
  static Memory<T> on_device(const std::vector<T>& host) {
    T* memory = nullptr;
    MXFP4_CUDA(cudaMalloc(&memory, host.size() * sizeof(T)));
    Memory<T> owner(memory);
    MXFP4_CUDA(cudaMemcpy(memory, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    MXFP4_CUDA(cudaStreamSynchronize(nullptr));  // other streams read it, and do not wait for this one
    return owner;
  }

  struct Held {
    BlockPlan plan;
    Memory<PlanBlock> blocks;
    Memory<PlanGroup> groups;
    Memory<uint32_t> copy;
    Memory<PlanSlot> slots;  // the last that is brought
    void bring(const Layout& layout, Shape storage, const MutableMatrix& m) {
      HostPlan host;
      make_plan(layout, storage, m, host);
      plan = host.plan;
      plan.blocks = (blocks = on_device(host.blocks)).get();
      plan.groups = (groups = on_device(host.groups)).get();
      plan.copy = (copy = on_device(host.copy)).get();
      plan.slots = (slots = on_device(host.slots)).get();
    }
  };
  std::map<Key, Held> held_;
};

}  // namespace mxfp4
