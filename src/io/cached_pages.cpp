#include "src/io/cached_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace mxfp4 {

namespace {

constexpr int64_t judged = 256 << 10;  // bytes that are read in one way
constexpr int64_t little = 8;          // such bytes are read through the cache if at most one page in 8 is missing

int64_t system_page() {
  static const int64_t size = ::sysconf(_SC_PAGESIZE);
  return size;
}

/// Pages of a range that are in the page cache; -1 if the system (before Linux 6.5) or the file's owner hides the
/// number.
int64_t count_cached(const Fd& fd, int64_t offset, int64_t bytes) {
  constexpr long cachestat = 451;  // on every architecture
  struct {
    uint64_t offset, bytes;
  } range{uint64_t(offset), uint64_t(bytes)};
  struct {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } found;
  return ::syscall(cachestat, fd.get(), &range, &found, 0) == 0 ? int64_t(found.cached) : -1;
}

/// Bit 0 of each page of a range; 0 if the system hides it. One count is cheaper than a map of all pages.
std::vector<unsigned char> cached_pages(const Fd& fd, int64_t begin, int64_t bytes) {
  const int64_t pages = (bytes + system_page() - 1) / system_page(), count = count_cached(fd, begin, bytes);
  std::vector<unsigned char> resident(size_t(pages), count >= pages);
  if (count == 0 || count >= pages) return resident;
  void* map = ::mmap(nullptr, size_t(bytes), PROT_READ, MAP_SHARED, fd.get(), begin);
  if (map == MAP_FAILED) return resident;
  if (::mincore(map, size_t(bytes), resident.data()) != 0) std::fill(resident.begin(), resident.end(), 0);
  ::munmap(map, size_t(bytes));
  return resident;
}

bool is_resident(unsigned char page) { return page & 1; }

}  // namespace

bool tells_what_is_cached(const Fd& fd) {
  if (::geteuid() == 0 || fd.stat().st_uid == ::geteuid()) return true;
  return ::faccessat(AT_FDCWD, fd.proc_path().c_str(), W_OK, AT_EACCESS) == 0;
}

bool is_range_cached(const Fd& fd, int64_t offset, int64_t bytes) {
  const int64_t begin = offset / system_page() * system_page();
  const std::vector<unsigned char> resident = cached_pages(fd, begin, offset + bytes - begin);
  return std::all_of(resident.begin(), resident.end(), is_resident);
}

CachedPages::CachedPages(const Fd& fd, int64_t offset, int64_t bytes)
    : fd_(fd),
      offset_(offset),
      bytes_(bytes),
      begin_(offset / system_page() * system_page()),
      resident_(cached_pages(fd, begin_, offset + bytes - begin_)) {}

size_t CachedPages::index(int64_t at) const { return size_t((at - begin_) / system_page()); }

std::vector<ReadRun> CachedPages::runs() const {
  std::vector<ReadRun> list;
  const int64_t last = offset_ + bytes_;
  for (int64_t at = offset_, end; at < last; at = end) {
    end = std::min((at / judged + 1) * judged, last);
    const auto first = resident_.begin() + std::ptrdiff_t(index(at)),
               stop = resident_.begin() + std::ptrdiff_t(index(end - 1) + 1);
    const int64_t missing = (stop - first) - std::count_if(first, stop, is_resident);
    const Way way = missing == 0 ? Way::cached : missing * little <= stop - first ? Way::fill : Way::direct;
    if (!list.empty() && list.back().way == way)
      list.back().end = end;
    else
      list.push_back({at, end, way});
  }
  return list;
}

int64_t CachedPages::cached_bytes(int64_t offset, int64_t bytes) const {
  const size_t first = index(std::max(offset, begin_)), end = index(offset + bytes + system_page() - 1);
  int64_t pages = 0;
  for (size_t i = first; i < std::min(end, resident_.size()); ++i) pages += is_resident(resident_[i]);
  return std::min(pages * system_page(), bytes);
}

void CachedPages::drop_missing(int64_t begin, int64_t end) const {
  const size_t last = index(end - 1) + 1;
  for (size_t i = index(begin), to; i < last; i = to) {
    for (to = i + 1; to < last && is_resident(resident_[to]) == is_resident(resident_[i]);) ++to;
    if (!is_resident(resident_[i]))
      ::posix_fadvise(fd_.get(), begin_ + int64_t(i) * system_page(), int64_t(to - i) * system_page(),
                      POSIX_FADV_DONTNEED);
  }
}

}  // namespace mxfp4
