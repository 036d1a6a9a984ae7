// One layer of a checkpoint in memory, as input of the MoE reference. It reads the checkpoint without any code that
// packs, so that no mistake of packing can hide.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kernels/moe/moe_source.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/shard_reader.h"
#include "src/models/model.h"

namespace mxfp4 {

/// A range and its destination.
struct Read {
  TensorRange range;
  uint8_t* to;
};
void read_all(const ShardReader& reader, const std::vector<Read>& reads, int threads);

/// The experts with a scale or a bias that is NaN or infinite.
std::set<int32_t> not_finite(const MoeSource& source);

class LayerSource {
 public:
  LayerSource(const Checkpoint& checkpoint, const MoeLayer& layer, int threads);
  const MoeSource& experts() const { return experts_; }

 private:
  struct Piece {
    std::unique_ptr<uint8_t[]> bytes;
    int64_t narrowed = 1;  // source bytes per byte in memory: 4 for F32 scales, which become E8M0
  };
  void load(const ShardReader& reader, const MoeLayer& layer, int threads);
  SourceRows rows(const Slice& slice) const;
  SourceMatrix matrix(const Projection& proj, int64_t n, int64_t k) const;

  std::map<std::pair<const Tensor*, int64_t>, Piece> pieces_;
  MoeSource experts_;
};

}  // namespace mxfp4
