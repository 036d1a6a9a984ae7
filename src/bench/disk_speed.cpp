#include "src/bench/disk_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "src/base/elapsed.h"
#include "src/base/error.h"
#include "src/bench/pack_speed.h"
#include "src/device/pipeline.h"
#include "src/io/direct_file.h"

namespace mxfp4 {

namespace {

constexpr int64_t block = 8 << 20;  // a job of convert

/// Seconds that it takes to do work(worker, i) for every block i, and `end` after them.
template <class Work, class End>
double seconds(int64_t blocks, int threads, Work work, End end) {
  const auto start = std::chrono::steady_clock::now();
  run_jobs(blocks, threads, work);
  end();
  return seconds_since(start);
}

/// Removed when its last descriptor is closed.
Fd make_file(const std::string& dir, int64_t bytes) {
  std::string name = dir + "/.mxfp4-pack-bench-XXXXXX";
  Fd fd(::mkostemp(name.data(), O_CLOEXEC), dir);
  if (!fd) fail_errno(dir, "cannot create a file", errno);
  ::unlink(name.c_str());
  if (::ftruncate(fd.get(), bytes) != 0) fail_errno(dir, "cannot set its size", errno);
  if (::fallocate(fd.get(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != EINVAL)
    fail_errno(dir, "cannot reserve space", errno);
  return fd;
}

/// Blocks in turn over several files, as convert's threads write to different files: writers of one file would wait for
/// each other.
class Files {
 public:
  Files(const std::string& dir, int64_t blocks, int64_t count) : dir_(dir) {
    for (int64_t i = 0; i < count; ++i) files_.emplace_back(make_file(dir, (blocks - i + count - 1) / count * block));
  }

  /// The same files, which stay open where the others are finished.
  Files again() const {
    Files same(dir_, 0, 0);
    for (const DirectFile& file : files_) same.files_.emplace_back(Fd(::dup(file.fd().get()), dir_));
    return same;
  }

  void read(Worker& worker, int64_t i) const { file(i).read(worker.source.reserve(block), block, offset(i)); }

  void write(Worker& worker, int64_t i) const {
    uint8_t* data = worker.packed.reserve(block);
    std::memset(data, int(i + 1), size_t(block));
    file(i).write(data, block, offset(i));
  }

  void finish() {
    for (DirectFile& file : files_) file.finish();
  }

 private:
  const DirectFile& file(int64_t i) const { return files_[size_t(i) % files_.size()]; }
  int64_t offset(int64_t i) const { return i / int64_t(files_.size()) * block; }

  std::string dir_;
  std::vector<DirectFile> files_;
};

}  // namespace

DiskSpeed disk_speed(const std::string& dir, int64_t bytes, int threads) {
  const int64_t blocks = bytes / block, count = worker_count(threads, blocks);
  std::vector<double> writes, reads, both;
  for (int r = 0; r < 3; ++r) {
    Files target(dir, blocks, count), other(dir, blocks, count);
    const Files source = target.again();
    const auto write = [&](Worker& worker, int64_t i) { target.write(worker, i); };
    const auto read = [&](Worker& worker, int64_t i) { source.read(worker, i); };
    const auto read_and_write = [&](Worker& worker, int64_t i) {
      source.read(worker, i);
      other.write(worker, i);
    };
    writes.push_back(seconds(blocks, threads, write, [&] { target.finish(); }));
    reads.push_back(seconds(blocks, threads, read, [] {}));
    both.push_back(seconds(blocks, threads, read_and_write, [&] { other.finish(); }));
  }
  const int64_t moved = blocks * block;
  const auto of = [](int64_t size, std::vector<double>& times) { return double(size) / median(times); };
  return {.bytes = moved, .write = of(moved, writes), .read = of(moved, reads), .both = of(2 * moved, both)};
}

}  // namespace mxfp4
