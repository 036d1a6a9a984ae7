// Packs matrices that are already in GPU memory, for programs that run their own work on that GPU.
#pragma once

#include <memory>

#include "kernels/pack/device.h"

namespace mxfp4 {

/// Any thread may call pack(). The first use of a layout copies its tables to the GPU and waits for that. The tables
/// stay until this object is destroyed, and destruction waits for the GPUs.
class Resident {
 public:
  Resident();
  ~Resident();

  /// All pointers point to memory of GPU `index`. Packs on the caller's stream (a cudaStream_t; null: the default
  /// stream) and does not wait for it. Rows must be readable up to the next multiple of 8 bytes, and packed matrices
  /// begin at multiples of 16. A ModeLayout must outlive this object.
  void pack(int index, std::span<const PackItem> items, void* stream);

 private:
  struct Maps;
  std::unique_ptr<Maps> maps_;
};

}  // namespace mxfp4
