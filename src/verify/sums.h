// SHA256SUMS of an output.
#pragma once

#include "src/base/error.h"
#include "src/io/parts.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Compares OUT with its SHA256SUMS, if it has one. The file covers the manifest and every file that the manifest
/// lists. A part checks its own files; the first part also checks all files without tensors.
void check_sums(const PackedCheckpoint& packed, const PartNumber& part, int threads, Problems& problems);

}  // namespace mxfp4
