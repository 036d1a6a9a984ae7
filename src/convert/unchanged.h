// Whether OUT is what a run would write, without writing it.
#pragma once

#include "src/packed/manifest.h"
#include "src/packed/source.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// The first difference between OUT's set and the set that the plan makes, in words that follow "but". It compares the
/// options that decide bytes (so an engine's release only by the layout version that it reads), the form of the source,
/// the sizes of files, their headers, and small files; not the contents of tensors.
/// Empty if it finds none. damage: the problems that were found when OUT was opened.
std::string difference_of_set(const Plan& plan, const ManifestOptions& options, const PackedCheckpoint& out,
                              Problems& damage);

/// Names what is wrong in an output that was opened but its tensors' bytes: sizes, headers, small files, and a manifest
/// that is not what its source and sets give.
void check_as_written(const PackedCheckpoint& out, Problems& damage);

/// Whether the source has the contents that OUT was made from. It is read and hashed, unless a private cache knows
/// every shard of `files` by device, inode, size, mtime and ctime.
bool has_same_contents(const Plan& plan, Source& source, const Checkpoint& files, const Manifest& m, int threads);

/// Reads and hashes what the jobs read that are `wanted`, by their number.
Checksums read_sums(const Plan& plan, Source& source, int threads, const std::vector<bool>& wanted);

/// Keeps a source's fingerprint in the cache, as far as its files let a later change be seen.
class SourceCache {
 public:
  /// Looks at the shards as they are before they are read. A source without files of its own is not kept.
  explicit SourceCache(const Checkpoint& checkpoint);
  /// Empty where it is not known.
  std::string find() const;
  /// After reading: does nothing where a shard changed meanwhile, or so lately that a change in the same tick could
  /// have been missed. A cache that cannot be written is not an error.
  void put(const std::string& fingerprint) const;

 private:
  std::string key() const;
  const Checkpoint& checkpoint_;
  std::string key_, path_;
  int64_t newest_ = 0;  // ctime of the shard that changed last, ns
};

}  // namespace mxfp4
