// The source of a conversion's bytes: a checkpoint's shards, or a packed output that is unpacked during the run.
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
  /// Reads pieces in the checkpoint's form. `sink`: see DirectFile::read.
  virtual void read_pieces(Worker& worker, const Pieces& pieces, uint8_t* to,
                           const DirectFile::BlockSink& sink = {}) = 0;
  /// Maps the range with all pieces as ShardReader::map does; null if the source has no shards to map.
  virtual std::unique_ptr<PageCacheMap> map(Device&, const Pieces&) const { return nullptr; }
  /// Reads consecutive pieces of the plan's copied tensors.
  virtual void read_copied(const Plan& plan, std::span<const CopyPiece> pieces, uint8_t* to,
                           const DirectFile::BlockSink& sink) = 0;
  /// The checkpoint, to look up codes of scales that are 0.0. Null if the output's own conversion has done this.
  virtual const ShardReader* reader() const = 0;
  /// Throws if a file has changed since it was opened, or if the bytes differ from known checksums.
  virtual void check_unchanged() const = 0;
};

std::unique_ptr<Source> read_from(const Checkpoint& checkpoint);

/// Reads a plan's tensors from other files with the same tensors, by name.
std::unique_ptr<Source> read_by_name(const Checkpoint& checkpoint);

/// `set` must hold all of its ranks.
std::unique_ptr<Source> read_from(const PackedCheckpoint& packed, const PackedSet& set);

}  // namespace mxfp4
