// Packs matrices that are already in GPU memory, for programs that run their own work on that GPU.
#pragma once

#include <memory>

#include "kernels/pack/device.h"

namespace mxfp4 {

/// Any thread may call pack(). What layouts by modes need in a GPU's memory is brought there when first asked for,
/// which is waited for, and stays until this ends; that waits for the GPUs.
class Resident {
 public:
  Resident();
  ~Resident();

  /// All pointers are of GPU `index`. Packs on a stream of the caller's (a cudaStream_t; null: the default one) and
  /// does not wait for it. Rows must be readable up to the next multiple of 8 bytes, packed matrices begin at
  /// multiples of 16. A ModeLayout must not end before this.
  void pack(int index, std::span<const PackItem> items, void* stream);

 private:
  struct Maps;
  std::unique_ptr<Maps> maps_;
};

}  // namespace mxfp4
