// Whether the tensors of an output still have the checksums in its manifest.
#pragma once

#include <string>

namespace mxfp4 {

struct PackedCheckpoint;

/// Reads every tensor of OUT, unless a private cache knows every file by device, inode, size, mtime and ctime. Returns
/// "FILE: TENSOR" of the first tensor that does not have its checksum; empty if all have theirs.
std::string damaged_tensor(const PackedCheckpoint& out, int threads);

}  // namespace mxfp4
