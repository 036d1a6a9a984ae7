#include "src/io/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

constexpr int64_t page = DirectFile::page;
constexpr int64_t least_file = 1 << 20;  // smaller ones are not worth a second descriptor
constexpr int64_t least_read = 64 << 10;
constexpr int64_t block = 4 << 20;           // enough for a disk to be busy
constexpr int64_t cached_block = 256 << 10;  // stays in a core's own cache

int64_t page_begin(int64_t at) { return at / page * page; }
int64_t page_end(int64_t at) { return page_begin(at + page - 1); }

/// The same file opened again for direct transfers; none where its file system refuses.
Fd open_direct(const Fd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL) & O_ACCMODE;
  const int twin = ::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), flags | O_DIRECT | O_CLOEXEC);
  return {twin, fd.name()};
}

/// Pages of the cache or blocks of the file system that are larger than `page` would be reached by both ways.
bool has_small_pages(const Fd& fd) {
  struct statvfs s;
  return ::sysconf(_SC_PAGESIZE) <= page && ::fstatvfs(fd.get(), &s) == 0 && int64_t(s.f_bsize) <= page;
}

/// Pages of a range that are in the page cache; -1 where the system (before Linux 6.5) or the file's owner does not
/// say.
int64_t cached_pages(const Fd& fd, int64_t offset, int64_t bytes) {
  constexpr long cachestat = 451;  // on every architecture
  struct {
    uint64_t offset, bytes;
  } range{uint64_t(offset), uint64_t(bytes)};
  struct {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } found;
  return ::syscall(cachestat, fd.get(), &range, &found, 0) == 0 ? int64_t(found.cached) : -1;
}

/// Whether all of a range is in the page cache.
bool is_range_cached(const Fd& fd, int64_t offset, int64_t bytes) {
  static const int64_t system_page = ::sysconf(_SC_PAGESIZE);
  const int64_t begin = offset / system_page * system_page;
  const auto length = size_t(offset + bytes - begin);
  if (const int64_t pages = cached_pages(fd, begin, int64_t(length)); pages >= 0)
    return pages * system_page >= int64_t(length);
  void* map = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd.get(), begin);
  if (map == MAP_FAILED) return false;
  std::vector<unsigned char> resident((length + size_t(system_page) - 1) / size_t(system_page));
  const bool known = ::mincore(map, length, resident.data()) == 0;
  ::munmap(map, length);
  return known && std::all_of(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; });
}

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};

/// A thread's buffer for the blocks of direct reads, which begin and end at pages while what is asked for need not.
uint8_t* read_buffer() {
  thread_local const std::unique_ptr<uint8_t, Free> buffer(static_cast<uint8_t*>(std::aligned_alloc(page, block)));
  if (!buffer) throw std::bad_alloc();
  return buffer.get();
}

/// The bytes that were written; fewer than asked for where the file system refuses direct writes.
int64_t write_direct(const Fd& fd, const uint8_t* from, int64_t bytes, int64_t offset) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t put =
        ::pwrite(fd.get(), from + done, size_t(std::min(bytes - done, int64_t(1) << 30)), offset + done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL) break;  // also what a short write that ends within a page leads to
    if (put == 0) errno = ENOSPC;
    if (put <= 0) fail_errno(fd.name(), "cannot write", errno);
    done += put;
  }
  return done;
}

}  // namespace

DirectFile::DirectFile(Fd fd) : fd_(std::move(fd)) {
  if (fd_.stat().st_size < least_file) return;
  in_memory_ = mxfp4::is_on_tmpfs(fd_);
  if (in_memory_) return;
  direct_ = open_direct(fd_);
  if (!direct_) return;
  direct_writes_ = has_small_pages(fd_);
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_RANDOM);  // little is read through the cache, and nothing around it
}

/// The bytes that were read; fewer than asked for where the disk did not give all.
int64_t DirectFile::read_direct(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  uint8_t* buffer = read_buffer();
  int64_t done = 0;
  while (done < bytes) {
    const int64_t at = offset + done, begin = page_begin(at);
    const int64_t ask = std::min(page_end(offset + bytes) - begin, block);
    const int64_t want = std::min(offset + bytes - begin, ask);  // the file may end within the last page
    ssize_t got;
    do got = ::pread(direct_.get(), buffer, size_t(ask), begin);
    while (got < 0 && errno == EINTR);
    if (got < want) break;
    const uint8_t* data = buffer + (at - begin);
    const int64_t part = begin + want - at;
    if (to) std::memcpy(to + done, data, size_t(part));
    if (sink) sink(data, part);
    done += part;
  }
  return done;
}

bool DirectFile::is_cached(int64_t bytes, int64_t offset) const {
  return in_memory_ || is_range_cached(fd_, offset, bytes);
}

void DirectFile::read(void* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  auto* out = static_cast<uint8_t*>(to);
  const bool cached = bytes < least_read || is_cached(bytes, offset);
  int64_t done = cached || !direct_ ? 0 : read_direct(out, bytes, offset, sink);
  if (done == bytes) return;
  for (int64_t part; done < bytes; done += part) {
    part = std::min(bytes - done, cached ? cached_block : block);
    uint8_t* data = out ? out + done : read_buffer();
    fd_.read(data, part, offset + done);
    if (sink) sink(data, part);
  }
  if (!cached) ::posix_fadvise(fd_.get(), offset, bytes, POSIX_FADV_DONTNEED);
}

void DirectFile::write_cached(const uint8_t* from, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  if (!sink) return fd_.write(from, bytes, offset);
  for (int64_t done = 0, part; done < bytes; done += part) {
    part = std::min(bytes - done, cached_block);
    sink(from + done, part);
    fd_.write(from + done, part, offset + done);
  }
}

void DirectFile::write(const void* data, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  const auto* from = static_cast<const uint8_t*>(data);
  const int64_t begin = page_end(offset) - offset, end = page_begin(offset + bytes) - offset;
  const bool congruent = (reinterpret_cast<uintptr_t>(from) - uintptr_t(offset)) % page == 0;
  if (!direct_writes_ || !congruent || begin >= end) return write_cached(from, bytes, offset, sink);
  if (sink) sink(from, bytes);
  fd_.write(from, begin, offset);
  const int64_t done = begin + write_direct(direct_, from + begin, end - begin, offset + begin);
  fd_.write(from + done, bytes - done, offset + done);
}

void DirectFile::finish() {
  fd_.sync();
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (direct_) direct_.close();
  fd_.close();
}

}  // namespace mxfp4
