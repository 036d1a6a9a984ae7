// A shard of the checkpoint that an output was made from, restored from the output byte after byte, and not written.
#pragma once

#include <functional>
#include <vector>

#include "src/packed/source.h"

namespace mxfp4 {

/// Where the bytes of every shard are in one set of an output.
class RestoredFiles {
 public:
  /// All must live as long. `set` holds all of its ranks and is not lossy.
  RestoredFiles(const PackedCheckpoint& packed, const PackedSet& set, Source& source);
  ~RestoredFiles();
  RestoredFiles(const RestoredFiles&) = delete;

  /// Whether experts of this set are in the shard: without them it is the same for every set.
  bool has_experts(size_t shard) const;
  /// Passes on the shard's bytes in order. From any thread. Throws Error{input} if they cannot be restored.
  using Sink = std::function<void(const uint8_t* data, int64_t bytes)>;
  void restore(size_t shard, Worker& worker, const Sink& sink) const;

 private:
  struct Segment;
  class Unpacked;
  void add_copied();
  void add_packed();
  void sort_and_check(size_t shard);

  const PackedCheckpoint& packed_;
  const Plan& plan_;
  Source& source_;
  std::vector<std::vector<Segment>> segments_;  // of each shard
};

}  // namespace mxfp4
