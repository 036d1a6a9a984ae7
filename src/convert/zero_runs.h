// Finds runs of zeros in a tensor, and decides whether rows of zeros explain them.
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

/// Runs of at least `least` zeros, except runs of whole pieces of `piece` bytes. Reads the tensor.
ZeroRuns zero_runs(const ShardReader& reader, const Tensor& t, int64_t least, int64_t piece);

/// rows: whole rows of zeros, as after pruning or padding.
/// torn: zeros that begin or end within a row, as after an unfinished download; or reach the end of a file; or fill
/// half of a piece.
struct Hole {
  enum Kind : uint8_t { none, rows, torn } kind = none;
  int64_t begin = 0, end = 0;  // of rows: indices; of a torn hole: bytes
};

/// Embeddings and heads may have rows of zeros for unused tokens: only more than a quarter is reported. `piece`: bytes
/// of one matrix. end_of_data: the file's end, in bytes from the tensor's start.
Hole worst_hole(const Tensor& t, const ZeroRuns& runs, int64_t piece, int64_t end_of_data);

}  // namespace mxfp4
