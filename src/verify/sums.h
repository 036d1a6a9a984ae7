// SHA256SUMS of an output.
#pragma once

#include "src/base/error.h"
#include "src/io/parts.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Where it is there, it covers the manifest and every file that the manifest lists. Of a part those that are dealt to
/// it, and with the first all that hold no tensors.
void check_sums(const PackedCheckpoint& packed, const PartNumber& part, int threads, Problems& problems);

}  // namespace mxfp4
