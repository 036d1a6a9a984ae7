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

/// Seconds that it takes to do work(worker, offset) on every block, and `end` after them.
template <class Work, class End>
double seconds(int64_t bytes, int threads, Work work, End end) {
  const auto start = std::chrono::steady_clock::now();
  run_jobs(bytes / block, threads, [&](Worker& worker, int64_t i) { work(worker, i * block); });
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

}  // namespace

DiskSpeed disk_speed(const std::string& dir, int64_t bytes, int threads) {
  bytes = bytes / block * block;
  std::vector<double> writes, reads, both;
  for (int r = 0; r < 3; ++r) {
    Fd fd = make_file(dir, bytes);
    const DirectFile source(Fd(::dup(fd.get()), dir));
    DirectFile target(std::move(fd)), other(make_file(dir, bytes));
    const auto write_to = [](const DirectFile& file, Worker& worker, int64_t at) {
      uint8_t* data = worker.packed.reserve(block);
      std::memset(data, int(at / block + 1), size_t(block));
      file.write(data, block, at);
    };
    const auto write = [&](Worker& worker, int64_t at) { write_to(target, worker, at); };
    const auto read = [&](Worker& worker, int64_t at) { source.read(worker.source.reserve(block), block, at); };
    const auto read_and_write = [&](Worker& worker, int64_t at) {
      read(worker, at);
      write_to(other, worker, at);
    };
    writes.push_back(seconds(bytes, threads, write, [&] { target.finish(); }));
    reads.push_back(seconds(bytes, threads, read, [] {}));
    both.push_back(seconds(bytes, threads, read_and_write, [&] { other.finish(); }));
  }
  const auto of = [](int64_t moved, std::vector<double>& times) { return double(moved) / median(times); };
  return {.bytes = bytes, .write = of(bytes, writes), .read = of(bytes, reads), .both = of(2 * bytes, both)};
}

}  // namespace mxfp4
