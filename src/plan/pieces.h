// The pieces of the source that a job reads, with their places in memory and among the checksums.
#pragma once

#include <vector>

#include "src/plan/canonical.h"
#include "src/plan/plan.h"

namespace mxfp4 {

/// A range of the source that is read and hashed at once: one expert's gate, up or down, or part of a copied tensor.
struct Piece {
  TensorRange range;
  size_t tensor = 0, number = 0;  // the place of its checksum: see SourceSums
  int64_t expert = 0;
  int view = 0;  // 1 for up, if it has a separate piece; else 0
  Width width = {};
  int64_t source_at = 0, canonical_at = 0;  // offsets in the buffers of source bytes and of canonical bytes
};

/// All pieces of a job, in order, and the sizes of the buffers. The tensors of other ranks have the same pieces.
struct Pieces {
  const Plan& plan;
  const PackedTensor* tensor = nullptr;  // null: the pieces are of copied tensors
  int64_t begin = 0, end = 0;            // experts of the tensor
  std::vector<Piece> list = {};
  int64_t source_bytes = 0, canonical_bytes = 0;

  /// Whether the checkpoint's bytes are in canonical form already.
  bool are_canonical() const { return source_bytes == canonical_bytes && !(tensor && tensor->parameter->values); }
  std::vector<TensorRange> ranges() const;
};
Pieces pieces_in(const Plan& plan, const PackedTensor& t, int64_t begin, int64_t end);
Pieces pieces_in(const Plan& plan, const Job& job);

inline constexpr int64_t copied_at_once = int64_t(8) << 20;  // fits into a packing job's buffer
/// The only piece of `whole`, a copied tensor's, in parts of at most copied_at_once. Its first byte is at `origin` of
/// the written file, and parts end at page boundaries of that file.
std::vector<Pieces> copied_parts(const Pieces& whole, int64_t origin);

}  // namespace mxfp4
