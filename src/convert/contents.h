// Contents that no publisher means: NaN and infinity among copied numbers, matrices and norms of zeros only.
//
// Numbers are looked at while their bytes pass by, and leave marks in the checksums. Zeros are told by the checksums
// alone: those of zeros are known.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/safetensors.h"

namespace mxfp4 {

struct Checksums;
struct CopyPiece;
struct Pieces;
struct Plan;

/// Looks at pieces which come one after the other in blocks of any size, and marks tensors with numbers that are not
/// finite.
class NumberScanner {
 public:
  /// A piece of numbers of one dtype, and where its tensor's marks are. Dtypes of integers and of MXFP4 codes pass.
  struct Piece {
    Dtype dtype;
    int64_t bytes;
    uint8_t* marks;
  };
  explicit NumberScanner(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}
  void operator()(const uint8_t* data, int64_t bytes);

 private:
  std::vector<Piece> pieces_;
  size_t next_ = 0;
  int64_t taken_ = 0;  // bytes of the next piece
  uint8_t split_[4];   // a number of which the last block had the beginning
  int64_t in_split_ = 0;
};

/// Of pieces of copied tensors, as copy_hasher() hashes them.
NumberScanner copy_scanner(const Plan& plan, std::span<const CopyPiece> pieces, Checksums& sums);
/// Of pieces of biases that are packed, as source_hasher() hashes them.
NumberScanner bias_scanner(const Plan& plan, size_t target, const Pieces& pieces, Checksums& sums);

/// Names what is wrong with the contents, a line for each kind, as errors or, if that is allowed, as warnings. False if
/// all is well. Tensors without checksums are not judged.
bool check_contents(const Plan& plan, const Checksums& sums, bool allowed, Problems& problems);

}  // namespace mxfp4
