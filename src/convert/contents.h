// Checks for contents that no publisher intends: NaN and infinity in copied numbers, matrices and norms with zeros
// only, and holes of zeros.
//
// Bytes are checked while a job reads them, and the checksums get marks. Tensors with zeros only have known checksums.
// A tensor with a mark of zeros is read again to locate the zeros.
#pragma once

#include <cstdint>
#include <vector>

#include "src/checkpoint/safetensors.h"

namespace mxfp4 {

struct Checksums;
struct Pieces;
struct Plan;
class ShardReader;

/// Reads consecutive pieces in blocks of any size. Marks tensors that have numbers that are not finite, or blocks of
/// zeros.
class NumberScanner {
 public:
  /// A piece with numbers of one dtype, and its tensor's marks. Integers and MXFP4 codes are not checked for NaN and
  /// infinity.
  struct Numbers {
    Dtype dtype;
    int64_t bytes;
    uint8_t* marks;
    int64_t zeros = 0;  // block size to mark; every run of two blocks is found. 0: does not mark zeros
  };
  explicit NumberScanner(std::vector<Numbers> pieces) : pieces_(std::move(pieces)) {}
  void operator()(const uint8_t* data, int64_t bytes);

 private:
  std::vector<Numbers> pieces_;
  size_t next_ = 0;
  int64_t taken_ = 0;  // of the next piece
  uint8_t split_[4];   // the first bytes of a number that continues in the next block
  int64_t in_split_ = 0;
};

/// Scans the pieces of a job, in the order of source_hasher().
NumberScanner source_scanner(const Pieces& pieces, Checksums& sums);

/// Reports unintended contents, a line for each kind, as errors or, if `allowed`, as warnings. Returns true if there
/// are none. Ignores tensors without checksums. `reader`: of the checkpoint; null: does not look for holes.
bool check_contents(const Plan& plan, const Checksums& sums, const ShardReader* reader, bool allowed,
                    Problems& problems);

}  // namespace mxfp4
