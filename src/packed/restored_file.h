// Restores the bytes of a checkpoint's shards from an output, without writing files.
#pragma once

#include <functional>
#include <vector>

#include "src/packed/source.h"
#include "src/plan/plan.h"

namespace mxfp4 {

/// Maps the bytes of every shard to a set of an output.
class RestoredFiles {
 public:
  /// All arguments must outlive this object. `set` must not be lossy.
  RestoredFiles(const PackedCheckpoint& packed, const PackedSet& set, Source& source);
  ~RestoredFiles();
  RestoredFiles(const RestoredFiles&) = delete;

  /// Whether the shard has experts of this set. A shard without experts is the same for every set.
  bool has_experts(size_t shard) const;
  /// Passes the shard's bytes to `sink` in order. Thread-safe. Throws Error{input} if they cannot be restored.
  using Sink = std::function<void(const uint8_t* data, int64_t bytes)>;
  void restore(size_t shard, Worker& worker, const Sink& sink) const;

 private:
  struct Segment;
  class Unpacked;
  void add(const Job& job);
  void sort_and_check(size_t shard);

  const PackedCheckpoint& packed_;
  const Plan& plan_;
  Source& source_;
  std::vector<std::vector<Segment>> segments_;  // of each shard
};

}  // namespace mxfp4
