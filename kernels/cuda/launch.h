// Pack and unpack matrices that are in device memory.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "kernels/cuda/batch.h"
#include "kernels/device.h"

namespace mxfp4 {

/// One launch for all items that share layout, sizes, strides and padding, up to Batch::max_items each. Asynchronous.
/// What Batch asks of pointers, these items' pointers must keep.
void launch_pack(std::span<const PackItem> items, cudaStream_t stream);

/// found: one per item, in device memory, all zeros.
void launch_unpack(std::span<const UnpackItem> items, PadFound* found, cudaStream_t stream);

/// What `found`, copied to the host, says of an item.
PadReport pad_report(const PadFound& found, const UnpackItem& item);

}  // namespace mxfp4
