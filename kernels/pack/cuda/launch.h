// Pack and unpack matrices that are in device memory.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "kernels/pack/cuda/batch.h"
#include "kernels/pack/cuda/plans.h"
#include "kernels/pack/device.h"

namespace mxfp4 {

/// One launch for all items that share layout, sizes, strides and padding, up to Batch::max_items each. Asynchronous.
/// The items' pointers must meet the conditions of Batch. plans must outlive the work on the stream.
void launch_pack(std::span<const PackItem> items, Plans& plans, cudaStream_t stream);

/// found: two per item, of its pads and of its copies, in device memory, all zeros.
void launch_unpack(std::span<const UnpackItem> items, Plans& plans, PadFound* found, cudaStream_t stream);

/// Compares the rows of items with the rows `expected_at` bytes (a multiple of 16) further on. Gaps between rows, and
/// bytes up to the next multiple of 16, must be readable. found: two per item, one for each view, in device memory, all
/// zeros.
void launch_compare(std::span<const UnpackItem> items, int64_t expected_at, PadFound* found, cudaStream_t stream);

/// Converts counters that were copied to the host into reports. width: bytes of a row of the packed matrix's storage,
/// or of the view.
PadReport pad_report(const PadFound& pads, const PadFound& copies, int64_t width);
ViewReport view_report(const PadFound& found, int64_t width);

}  // namespace mxfp4
