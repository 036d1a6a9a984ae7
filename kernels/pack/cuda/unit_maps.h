// The maps of layouts by modes in a GPU's memory. Each is copied there at its first use.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <span>

#include "kernels/pack/cuda/check.h"
#include "kernels/pack/cuda/unit_map.h"

namespace mxfp4 {

/// The maps of layouts on one GPU: the thread's current one when of() is called. Layouts are identified by their
/// addresses.
class UnitMaps {
 public:
  const UnitMap& of(const ModeLayout& layout) {
    Held& held = held_[&layout];
    if (!held.low) held.bring(Units(layout));
    return held.map;
  }

 private:
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
    UnitMap map;
    Memory<uint32_t> copy;
    Memory<UnitPlace> high, low;  // low: the last that is brought
    void bring(const Units& units) {
      copy = on_device(units.copy);
      high = on_device(units.high);
      low = on_device(units.low);
      map = units.map;
      map.copy = copy.get();
      map.high = high.get();
      map.low = low.get();
    }
  };
  std::map<const ModeLayout*, Held> held_;
};

}  // namespace mxfp4
