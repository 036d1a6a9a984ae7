// Launches for layouts by modes: of a batch that for_batches() made.
#pragma once

#include "kernels/pack/cuda/batch.h"
#include "kernels/pack/cuda/check.h"
#include "kernels/pack/cuda/unit_map.h"

namespace mxfp4 {

void launch_pack_units(const Batch& batch, const UnitMap& map, int items, cudaStream_t stream);
void launch_unpack_units(const Batch& batch, const UnitMap& map, int items, cudaStream_t stream);

}  // namespace mxfp4
