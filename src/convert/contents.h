// Contents that no publisher means: NaN and infinity among copied numbers, matrices and norms of zeros only, and holes
// of zeros.
//
// Bytes are looked at while they pass by, and leave marks in the checksums. Tensors of zeros only are told by the
// checksums alone: those of zeros are known. A tensor with a mark of zeros is read again, to see where they are.
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
class ShardReader;

/// Looks at pieces which come one after the other in blocks of any size, and marks tensors with numbers that are not
/// finite, and with zeros.
class NumberScanner {
 public:
  /// A piece of numbers of one dtype, and where its tensor's marks are. Dtypes of integers and of MXFP4 codes pass.
  struct Piece {
    Dtype dtype;
    int64_t bytes;
    uint8_t* marks;
    int64_t zeros = 0;  // so many bytes of zeros are marked; of twice as many, none escapes. 0: none are marked.
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
/// Of pieces that are packed, as source_hasher() hashes them.
NumberScanner packed_scanner(const Plan& plan, size_t target, const Pieces& pieces, Checksums& sums);

/// Marks zeros in pieces that no CPU has read, by a few bytes of each: only large holes.
void probe_zeros(const ShardReader& reader, const Plan& plan, size_t target, const Pieces& pieces, Checksums& sums);

/// Names what is wrong with the contents, a line for each kind, as errors or, if that is allowed, as warnings. False if
/// all is well. Tensors without checksums are not judged. `reader`: of the checkpoint; null: holes are not judged.
bool check_contents(const Plan& plan, const Checksums& sums, const ShardReader* reader, bool allowed,
                    Problems& problems);

}  // namespace mxfp4
