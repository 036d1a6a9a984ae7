#include "src/device/page_cache_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernels/pack/device.h"

namespace mxfp4 {

namespace {

// Advice of Linux 5.14 and 6.1 that older headers lack. It returns an error in cases in which touching a page would
// raise SIGBUS.
constexpr int populate_read = 22, populate_write = 23, collapse = 25;

constexpr int64_t large_page = 2 << 20;

int64_t page_size() {
  static const int64_t size = ::sysconf(_SC_PAGESIZE);
  return size;
}
int64_t round_down(int64_t x, int64_t multiple) { return x / multiple * multiple; }

/// Joins small pages to large pages. Every large page must have at least one small page in memory.
bool make_large(uint8_t* data, int64_t bytes) {
  if (bytes <= 0) return true;
  for (int64_t i = 0; i < bytes; i += large_page)
    if (::madvise(data + i, size_t(page_size()), populate_read) != 0) return false;
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (::madvise(data, size_t(bytes), collapse) == 0) return true;
    if (errno != EAGAIN) return false;  // EAGAIN: a page is in use for a moment
  }
  return false;
}

}  // namespace

std::unique_ptr<PageCacheMap> PageCacheMap::for_reading(Device& device, const Fd& fd, int64_t offset, int64_t bytes) {
  std::unique_ptr<PageCacheMap> map(new PageCacheMap);
  const int64_t begin = round_down(offset, page_size()), end = round_up(offset + bytes, page_size());
  const bool done = map->make(fd, begin, end, PROT_READ) &&
                    ::madvise(map->data_, size_t(end - begin), populate_read) == 0 &&
                    map->lock(device, offset, bytes, false);
  return done ? std::move(map) : nullptr;
}

std::unique_ptr<PageCacheMap> PageCacheMap::for_writing(Device& device, const Fd& fd, int64_t offset, int64_t bytes) {
  std::unique_ptr<PageCacheMap> map(new PageCacheMap);
  const int64_t begin = round_down(offset, large_page), end = round_up(offset + bytes, large_page);
  const int64_t large_end =
      std::min(end, round_down(fd.stat().st_size, large_page));  // a file in memory has no pages beyond its size
  const bool done = map->make(fd, begin, end, PROT_READ | PROT_WRITE) && make_large(map->data_, large_end - begin) &&
                    map->lock(device, offset, bytes, true);
  return done ? std::move(map) : nullptr;
}

bool PageCacheMap::can_write() {
  static const bool can = [] {
    const Fd fd(::memfd_create("mxfp4-pack", MFD_CLOEXEC), "memory");
    PageCacheMap map;
    return fd && ::ftruncate(fd.get(), large_page) == 0 && map.make(fd, 0, large_page, PROT_READ | PROT_WRITE) &&
           make_large(map.data_, large_page);
  }();
  return can;
}

/// Maps a range so that large pages begin at multiples of their size both in memory and in the file.
bool PageCacheMap::make(const Fd& fd, int64_t begin, int64_t end, int access) {
  const int64_t bytes = end - begin;
  void* const room = ::mmap(nullptr, size_t(bytes + large_page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  auto* const first = static_cast<uint8_t*>(room);
  const auto to = int64_t(reinterpret_cast<uintptr_t>(first));
  const int64_t skip = round_up(to - begin % large_page, large_page) + begin % large_page - to;
  data_ = first + skip;
  begin_ = begin;
  bytes_ = bytes;
  if (skip > 0) ::munmap(first, size_t(skip));
  if (skip < large_page) ::munmap(data_ + bytes, size_t(large_page - skip));
  return ::mmap(data_, size_t(bytes), access, MAP_SHARED | MAP_FIXED, fd.get(), begin) != MAP_FAILED;
}

bool PageCacheMap::lock(Device& device, int64_t offset, int64_t bytes, bool writes) {
  const int64_t begin = round_down(offset, page_size()), end = round_up(offset + bytes, page_size());
  if (writes && ::madvise(at(begin), size_t(end - begin), populate_write) != 0) return false;
  lock_ = device.lock(at(begin), end - begin, writes);
  return lock_ != nullptr;
}

PageCacheMap::~PageCacheMap() {
  lock_.reset();
  if (data_) ::munmap(data_, size_t(bytes_));
}

std::unique_ptr<PageCacheMap> map_to_read(Device& device, const DirectFile& file, int64_t bytes, int64_t offset) {
  return file.is_cached(bytes, offset) ? PageCacheMap::for_reading(device, file.fd(), offset, bytes) : nullptr;
}

std::unique_ptr<PageCacheMap> map_to_write(Device& device, const DirectFile& file, int64_t bytes, int64_t offset) {
  return file.is_on_tmpfs() ? PageCacheMap::for_writing(device, file.fd(), offset, bytes) : nullptr;
}

}  // namespace mxfp4
