// Compares the published hashes of a source's shards during their conversion.
//
// A hash needs a file's bytes in order, in one thread at a time. So jobs are taken in the order of the files. The
// thread that takes a job first hashes its file up to the job's last byte. This brings the bytes into the page cache
// for the job, so the disk is read once.
//
//     a file     |=================>·········|        = hashed
//     its jobs     [done] [done] [this one]           the next job waits until another part is hashed
//
// Threads take different files if there are enough.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "src/checkpoint/published_list.h"
#include "src/checkpoint/shard_reader.h"

namespace mxfp4 {

class SourceHashes {
 public:
  /// published: hashes of some shards; other entries are ignored. Both arguments must outlive this object.
  SourceHashes(const Checkpoint& checkpoint, const PublishedList& published);
  ~SourceHashes();

  /// ends[i] is the last range of the source that job i reads, by the tensor's name in the checkpoint.
  void set_jobs(const std::vector<TensorRange>& ends);
  /// Gives each job once, when all bytes of its file that it reads are hashed. Thread-safe.
  int64_t next();
  /// Must be called after a job is carried out.
  void done(int64_t job);
  /// Hashes the bytes after the last job's in each file. Must be called after the last job.
  void finish(int threads);

  /// Whether any hash differs from the published hash.
  bool any_wrong() const;
  /// Reports each shard with a wrong hash.
  void report(Problems& problems) const;

 private:
  class File;
  File& first_choice();

  std::vector<std::unique_ptr<File>> files_;  // of the checkpoint's shards
  const Checkpoint& checkpoint_;
  std::vector<size_t> file_of_job_;
  mutable std::mutex mutex_;
};

}  // namespace mxfp4
