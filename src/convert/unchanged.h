// Decides whether OUT equals the result of a run, without writing it.
#pragma once

#include "src/io/place.h"
#include "src/packed/manifest.h"
#include "src/packed/source.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// "its --gate-up is X, and Y is asked for": the first difference, or empty.
std::string difference_of(const ModelOptions& was, const ModelOptions& is);

/// The first difference between OUT's set and the plan's set, as text to follow "but"; empty if there is none. It
/// compares options that affect bytes, the form of the source, sizes and headers of files, and small files. Of an
/// engine's release, only the layout version counts. Contents of tensors are not compared. damage: the problems found
/// when OUT was opened.
std::string difference_of_set(const Plan& plan, const ManifestOptions& options, const PackedCheckpoint& out,
                              Problems& damage);

/// Whether OUT is an output that no run can replace. It needs no lock to be found unchanged.
bool is_fixed_output(const Place& out);

/// The first difference of the index and the small files from those that OUT was made from; empty if there is none.
std::string difference_of_files(const Checkpoint& checkpoint, const Manifest& out);

/// After check_files(): reports files that the manifest does not list, and a manifest that does not fit its source and
/// sets.
void check_as_written(const PackedCheckpoint& out, Problems& damage);

/// Whether the source has the contents from which OUT was made. Reads and hashes the source, unless a private cache
/// knows every shard of `files` by device, inode, size, mtime and ctime.
bool has_same_contents(const Plan& plan, Source& source, const Checkpoint& files, const Manifest& m, int threads);

/// Reads and hashes the source ranges of the jobs for which `wanted` is true.
Checksums read_sums(const Plan& plan, Source& source, int threads, const std::vector<bool>& wanted);

/// Reads every tensor of OUT, unless the private cache knows all of its files. Returns "FILE: TENSOR" for the first
/// tensor without its checksum, or an empty text.
std::string damaged_tensor(const PackedCheckpoint& out, int threads);

/// Caches a checksum of a checkpoint's or an output's contents, if a later change of its files would be detected. That
/// is fingerprint_of() all tensors, or Manifest::own_checksum. The key is the program's version and the files alone. A
/// checksum that depends on options, or on a choice of tensors, needs them in the key.
class ContentsCache {
 public:
  /// Records the state of the shards before they are read. A source without its own files is not cached.
  explicit ContentsCache(const Checkpoint& checkpoint);
  /// Empty if unknown.
  std::string find() const;
  /// Called after the read. Does nothing if a shard has changed during the read, or so recently that another change in
  /// the same clock tick would be missed. Ignores write errors.
  void put(const std::string& checksum);

 private:
  std::string key();
  const Checkpoint& checkpoint_;
  std::string key_, path_;
  int64_t newest_ = 0;  // ctime of the shard that changed last, ns
};

}  // namespace mxfp4
