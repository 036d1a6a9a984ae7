// Compares an output's tensors with the checksums in its manifest.
#pragma once

#include <string>

namespace mxfp4 {

struct PackedCheckpoint;

/// Reads every tensor of OUT. Skips this if the private cache knows every file by device, inode, size, mtime and ctime.
/// Returns "FILE: TENSOR" for the first tensor without its checksum, or an empty text.
std::string damaged_tensor(const PackedCheckpoint& out, int threads);

}  // namespace mxfp4
