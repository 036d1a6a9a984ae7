// The published hashes of a source's shards, compared while the shards are converted.
//
// A hash takes a file's bytes in order, and one thread at a time. So the jobs are taken in the order of the files, and
// whoever takes a job first hashes its file up to the job's last byte. Those bytes come into the page cache, where the
// job finds them: a disk is read once.
//
//     a file     |=================>·········|        = hashed
//     its jobs     [done] [done] [this one]           the next job waits until another part is hashed
//
// Threads take different files as long as there are any.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "src/checkpoint/published_list.h"
#include "src/checkpoint/shard_reader.h"

namespace mxfp4 {

class SourceHashes {
 public:
  /// published: of some of the checkpoint's shards; other files in it are passed over. Both must live as long.
  SourceHashes(const Checkpoint& checkpoint, const PublishedList& published);
  ~SourceHashes();

  /// ends[i] is the last range of the source that job i reads, by the tensor's name.
  void set_jobs(const std::vector<TensorRange>& ends);
  /// Gives each job once, to any thread. What it reads of its file has been hashed.
  int64_t next();
  /// The job was carried out.
  void done(int64_t job);
  /// Hashes what no job was read from. After the last job.
  void finish(int threads);

  /// Whether a hash was found that is not as published.
  bool any_wrong() const;
  /// One problem for each such shard.
  void report(Problems& problems) const;

 private:
  class File;
  File& first_choice();

  std::vector<std::unique_ptr<File>> files_;  // [i] is the checkpoint's shard i
  const Checkpoint& checkpoint_;
  std::vector<size_t> file_of_job_;
  mutable std::mutex mutex_;
};

}  // namespace mxfp4
