// Where a conversion's bytes come from: a checkpoint's shards, or a packed output, unpacked on the way.
#pragma once

#include <memory>
#include <span>

#include "src/device/page_cache_map.h"
#include "src/plan/plan.h"

namespace mxfp4 {

struct PackedCheckpoint;
struct PackedSet;
struct Pieces;
class ShardReader;
struct Worker;

class Source {
 public:
  virtual ~Source() = default;
  /// Pieces as the checkpoint holds them; `sink` as DirectFile::read.
  virtual void read_pieces(Worker& worker, const Pieces& pieces, uint8_t* to,
                           const DirectFile::BlockSink& sink = {}) = 0;
  /// What holds all pieces, as ShardReader::map; null where they are in no shard.
  virtual std::unique_ptr<PageCacheMap> map(Device&, const Pieces&) const { return nullptr; }
  /// Pieces of the plan's copied tensors, one after the other.
  virtual void read_copied(const Plan& plan, std::span<const CopyPiece> pieces, uint8_t* to,
                           const DirectFile::BlockSink& sink) = 0;
  /// A checkpoint to look codes up in, for scales that are 0.0; null where that was done when the output was made.
  virtual const ShardReader* reader() const = 0;
  /// Throws where a file changed while it was read, or does not have the checksums that are known of it.
  virtual void check_unchanged() const = 0;
};

std::unique_ptr<Source> read_from(const Checkpoint& checkpoint);

/// For a plan of other files that hold the same tensors: each is looked up by its name.
std::unique_ptr<Source> read_by_name(const Checkpoint& checkpoint);

/// `set`: one that holds all its ranks.
std::unique_ptr<Source> read_from(const PackedCheckpoint& packed, const PackedSet& set);

}  // namespace mxfp4
