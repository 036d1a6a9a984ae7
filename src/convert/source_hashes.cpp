#include "src/convert/source_hashes.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "src/base/error.h"
#include "src/base/signals.h"
#include "src/base/slots.h"
#include "src/base/threads.h"
#include "src/checkpoint/published.h"
#include "src/io/cached_pages.h"

namespace mxfp4 {

namespace {

constexpr int64_t hash_step = 256 << 10;   // fits into a core's own cache between read and hash
constexpr int64_t asked_ahead = 16 << 20;  // bytes that the disk reads ahead
constexpr int64_t asked_at_once = 128 << 10;
constexpr int64_t kept_behind = 512 << 20;  // a job's ranges can be this far apart

}  // namespace

class SourceHashes::File {
 public:
  /// published: null if this file has no published hash.
  File(const Shard& shard, const PublishedFile* published) : shard_(shard), published_(published) {}

  void add_job(int64_t job, int64_t end) { jobs_.push_back({end, job}); }
  void sort_jobs() { std::sort(jobs_.begin(), jobs_.end()); }

  // Needs SourceHashes' lock:
  bool has_jobs() const { return taken_ < jobs_.size(); }
  int busy() const { return busy_; }
  struct Taken {
    int64_t end, job;
    auto operator<=>(const Taken&) const = default;
  };
  Taken take() {
    ++busy_;
    return jobs_[taken_++];
  }
  /// Returns true after the file's last job.
  bool end_job() { return --busy_ == 0 && !has_jobs(); }

  // Thread-safe:
  void hash_until(int64_t end) {
    if (!published_) return;
    const auto lock = lock_without_slot();
    advance(end);
  }
  /// Called when no job reads the file any more.
  void end() {
    if (!published_) return;
    const auto lock = lock_without_slot();
    advance(shard_.state.bytes);
    if (hashing_) drop_until(at_);
    hashing_.reset();
  }
  bool is_wrong() const { return is_done_ && is_ != published_->hash; }
  void report(Problems& problems) const {
    if (is_wrong()) compare_published(*published_, is_, problems);
  }

 private:
  /// The open file and its digest during hashing.
  struct Hashing {
    Hashing(Fd file, int64_t bytes, const PublishedFile& published)
        : fd(std::move(file)),
          digest(digest_like(published, bytes)),
          before(fd, 0, bytes),
          buffer(std::make_unique_for_overwrite<uint8_t[]>(size_t(hash_step))) {
      ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    Fd fd;
    Digest digest;
    CachedPages before;
    std::unique_ptr<uint8_t[]> buffer;
    int64_t asked = 0, dropped = 0;
  };

  std::unique_lock<std::mutex> lock_without_slot() {
    const Slots::Left slot;
    return std::unique_lock(mutex_);
  }
  void advance(int64_t end) {
    if (is_done_ || at_ >= end) return;
    if (!hashing_) open();
    while (at_ < end) read_on(std::min(hash_step, end - at_));
    if (const int64_t last = at_ - kept_behind; last - hashing_->dropped >= kept_behind / 8) drop_until(last);
    if (at_ < shard_.state.bytes) return;
    is_ = hashing_->digest.hex();
    is_done_ = true;
  }
  void open() { hashing_.emplace(open_again(shard_), shard_.state.bytes, *published_); }
  void read_on(int64_t bytes) {
    throw_if_interrupted();
    Hashing& h = *hashing_;
    const int64_t ahead = std::min(at_ + asked_ahead, shard_.state.bytes);
    for (; h.asked < ahead; h.asked += asked_at_once)
      ::posix_fadvise(h.fd.get(), h.asked, std::min(asked_at_once, ahead - h.asked), POSIX_FADV_WILLNEED);
    {
      const Slots::Left slot;
      h.fd.read(h.buffer.get(), bytes, at_);
    }
    h.digest.take(h.buffer.get(), bytes);
    at_ += bytes;
  }
  /// Drops pages, except those that were in the page cache before the run.
  void drop_until(int64_t end) {
    if (end > hashing_->dropped) hashing_->before.drop_missing(hashing_->dropped, end);
    hashing_->dropped = end;
  }

  const Shard& shard_;
  const PublishedFile* const published_;
  std::vector<Taken> jobs_;  // sorted by end
  size_t taken_ = 0;
  int busy_ = 0;
  std::mutex mutex_;  // guards the members below
  std::optional<Hashing> hashing_;
  int64_t at_ = 0;
  std::string is_;
  std::atomic<bool> is_done_ = false;
};

SourceHashes::SourceHashes(const Checkpoint& checkpoint, const PublishedList& published) : checkpoint_(checkpoint) {
  for (const Shard& s : checkpoint.shards) files_.push_back(std::make_unique<File>(s, find(published, s.name)));
}

SourceHashes::~SourceHashes() = default;

void SourceHashes::set_jobs(const std::vector<TensorRange>& ends) {
  for (size_t i = 0; i < ends.size(); ++i) {
    const Tensor& tensor = *checkpoint_.find(ends[i].tensor->name);
    file_of_job_.push_back(size_t(tensor.file));
    files_[size_t(tensor.file)]->add_job(int64_t(i), tensor.offset + ends[i].offset + ends[i].bytes);
  }
  for (const auto& file : files_) file->sort_jobs();
}

/// Among the files with jobs left, the first with the fewest busy threads.
SourceHashes::File& SourceHashes::first_choice() {
  File* best = nullptr;
  for (const auto& file : files_)
    if (file->has_jobs() && (!best || file->busy() < best->busy())) best = file.get();
  return *best;
}

int64_t SourceHashes::next() {
  std::unique_lock lock(mutex_);
  File& file = first_choice();
  const File::Taken taken = file.take();
  lock.unlock();
  file.hash_until(taken.end);
  return taken.job;
}

void SourceHashes::done(int64_t job) {
  File& file = *files_[file_of_job_[size_t(job)]];
  std::unique_lock lock(mutex_);
  const bool was_last = file.end_job();
  lock.unlock();
  if (was_last) file.end();
}

void SourceHashes::finish(int threads) {
  run_jobs(int64_t(files_.size()), threads, [&](int64_t i) { files_[size_t(i)]->end(); });
}

bool SourceHashes::any_wrong() const {
  return std::any_of(files_.begin(), files_.end(), [](const auto& file) { return file->is_wrong(); });
}

void SourceHashes::report(Problems& problems) const {
  for (const auto& file : files_) file->report(problems);
}

}  // namespace mxfp4
