// Runs of zeros in a tensor, and whether rows of zeros explain them.
#pragma once

#include <cstdint>
#include <vector>

#include "src/checkpoint/safetensors.h"

namespace mxfp4 {

class ShardReader;

struct ZeroRun {
  int64_t begin = 0, end = 0;  // bytes of the tensor
};
using ZeroRuns = std::vector<ZeroRun>;

/// Runs of at least `least` zeros that are not whole pieces of `piece` bytes each. Reads the tensor.
ZeroRuns zero_runs(const ShardReader& reader, const Tensor& t, int64_t least, int64_t piece);

/// rows: whole rows of zeros, as pruning and padding leave them. torn: zeros that begin or end within a row, as an
/// unfinished download leaves them, that reach the end of a file, or that are half of a piece.
struct Hole {
  enum Kind : uint8_t { none, rows, torn } kind = none;
  int64_t begin = 0, end = 0;  // bytes of a torn one, else rows
};

/// Rows of zeros in an embedding or a head are those of unused tokens; only more than a quarter is said. `piece`: bytes
/// of one matrix. end_of_data: where the file ends, from the tensor's first byte on.
Hole worst_hole(const Tensor& t, const ZeroRuns& runs, int64_t piece, int64_t end_of_data);

}  // namespace mxfp4
