// Packing where the matrices are already in a GPU's memory, for programs that have their own work on it.
#pragma once

#include "kernels/pack/device.h"

namespace mxfp4 {

/// All pointers are of GPU `index`. Packs on a stream of the caller's (a cudaStream_t; null: the default one) and does
/// not wait for it. Rows must be readable up to the next multiple of 8 bytes, packed matrices begin at multiples of 16.
/// No layout is ByModes.
void pack_on_cuda(int index, std::span<const PackItem> items, void* stream);

}  // namespace mxfp4
