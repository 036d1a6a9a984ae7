// Checksums of a plan's tensors, and the places in them for what a job reads and writes.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "src/base/checksum.h"
#include "src/plan/plan.h"

namespace mxfp4 {

struct Piece;
struct Pieces;

/// Marks of a source tensor, found while it is read.
namespace mark {
inline constexpr uint8_t float_zero = 1;  // scales: byte 0 stands for F32 0.0
inline constexpr uint8_t nan = 2;         // copied numbers, or packed biases
inline constexpr uint8_t plus_infinity = 4;
inline constexpr uint8_t minus_infinity = 8;
inline constexpr uint8_t zero_block = 16;  // a whole block of zeros
}  // namespace mark

/// Of the sources of a packed tensor (see sources_of()), or of all copied tensors.
struct SourceSums {
  std::vector<std::vector<Hash>> hashes;  // per tensor, per piece
  std::vector<uint8_t> marks;             // per tensor
  Hash& hash_of(const Piece& p);
  uint8_t& marks_of(const Piece& p);
};

/// Filled by a plan's jobs.
struct Checksums {
  struct Packed {
    std::vector<Hash> slices;  // per expert
    SourceSums sources;        // only of the first rank's tensor, because all ranks have the same source
  };
  std::vector<Packed> packed;
  SourceSums copied;

  explicit Checksums(const Plan& plan);
  SourceSums& sources_of(const Pieces& pieces);
};

/// The source tensors of a packed tensor in the manifest's order: one stacked tensor; or gate's and up's stacked
/// tensors; or gate and up of each expert.
std::vector<const Tensor*> sources_of(const Plan& plan, const PackedTensor& t);

/// A source tensor's entries in Checksums, and the file of OUT with its (first rank's) bytes, if it has one.
struct SourceSum {
  const Tensor& tensor;
  const std::vector<Hash>& hashes;
  uint8_t marks;
  std::optional<int> file;
};
/// Copied tensors first, then the sources of packed tensors.
void each_source(const Plan& plan, const Checksums& sums, const std::function<void(const SourceSum&)>& use);

/// The places for the checksums of output_of(plan, job), in the same order.
std::vector<Hash*> output_hashes(const Plan& plan, const Job& job, Checksums& sums);

/// These hash a job's bytes into `sums` while they are read or written in order.
PieceHasher source_hasher(const Pieces& pieces, Checksums& sums);
/// Experts [begin, end) of plan.packed[target]:
PieceHasher slice_hasher(const Plan& plan, size_t target, int64_t begin, int64_t end, Checksums& sums);

}  // namespace mxfp4
