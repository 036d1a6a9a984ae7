#include "src/io/direct_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "src/base/error.h"
#include "src/base/slots.h"
#include "src/io/cached_pages.h"

namespace mxfp4 {

namespace {

constexpr int64_t page = DirectFile::page;
constexpr int64_t least_file = 1 << 20;  // smaller ones are not worth a second descriptor
constexpr int64_t least_read = 64 << 10;
constexpr int64_t block = 4 << 20;  // enough for a disk to be busy
constexpr int64_t huge_page = 2 << 20;
constexpr int64_t cached_block = 256 << 10;  // stays in a core's own cache
// Linux allocates page cache in pages as large as a write. Larger pages than these are often not available, and a
// virtual machine's host may have to fetch their memory first.
constexpr int64_t page_cache_write = 64 << 10;
constexpr int64_t least_ahead = 128 << 10;

int64_t page_begin(int64_t at) { return at / page * page; }
int64_t page_end(int64_t at) { return page_begin(at + page - 1); }

/// The same file opened again; none if the system refuses.
Fd open_again(const Fd& fd, int flags) {
  const int twin = ::open(fd.proc_path().c_str(), flags | O_CLOEXEC);
  return {twin, fd.name()};
}

/// The same file opened for direct transfers; none if its file system refuses.
Fd open_direct(const Fd& fd) { return open_again(fd, (::fcntl(fd.get(), F_GETFL) & O_ACCMODE) | O_DIRECT); }

/// False if pages of the cache or blocks of the file system are larger than `page`: direct and cached writes would then
/// overlap in one page.
bool has_small_pages(const Fd& fd) {
  struct statvfs s;
  return ::sysconf(_SC_PAGESIZE) <= page && ::fstatvfs(fd.get(), &s) == 0 && int64_t(s.f_bsize) <= page;
}

/// Starts reading a range into the page cache. Linux limits each request to its read-ahead, by default 128 KiB.
void begin_reading(const Fd& fd, int64_t offset, int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += least_ahead)
    ::posix_fadvise(fd.get(), offset + done, std::min(bytes - done, least_ahead), POSIX_FADV_WILLNEED);
}

/// Runs a transfer that waits for a disk. Meanwhile another thread may use this thread's slot. A transfer that a signal
/// ends is repeated. Returns the result of the transfer, or -errno.
template <class Transfer>
int64_t while_others_work(const Transfer& transfer) {
  const Slots::Left slot;
  int64_t result;
  do result = transfer();
  while (result < 0 && errno == EINTR);
  return result < 0 ? -errno : result;
}

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};

/// A thread keeps this from one read to the next.
struct ThreadsOwn {
  std::unique_ptr<uint8_t, Free> buffer;
  Fd file;              // the file that it read last through the page cache
  uint64_t number = 0;  // of that file's DirectFile
};

pthread_key_t key_of_threads() {
  pthread_key_t key;
  const auto end = [](void* own) { delete static_cast<ThreadsOwn*>(own); };
  if (::pthread_key_create(&key, end) != 0) throw std::bad_alloc();
  return key;
}

/// No thread_local: if glibc has no memory to register its destructor, it ends the process.
ThreadsOwn& threads_own() {
  static const pthread_key_t key = key_of_threads();
  if (void* own = ::pthread_getspecific(key)) return *static_cast<ThreadsOwn*>(own);
  auto own = std::make_unique<ThreadsOwn>();
  if (::pthread_setspecific(key, own.get()) != 0) throw std::bad_alloc();
  return *own.release();
}

/// The calling thread's buffer for direct reads. Direct reads begin and end at pages; the requested range need not. The
/// buffer uses huge pages if the system has them. A disk request lists stretches of memory, and many short stretches
/// cost a virtual disk up to half of its speed.
uint8_t* read_buffer() {
  ThreadsOwn& own = threads_own();
  if (own.buffer) return own.buffer.get();
  own.buffer.reset(static_cast<uint8_t*>(std::aligned_alloc(huge_page, block)));
  if (!own.buffer) throw std::bad_alloc();
  ::madvise(own.buffer.get(), size_t(block), MADV_HUGEPAGE);  // without huge pages reads are only slower
  return own.buffer.get();
}

/// The calling thread's own descriptor of a file, for reads through the page cache. Linux reads ahead of each
/// descriptor's last read, in large pages: threads that share one would end each other's read-ahead.
const Fd& own_descriptor(const Fd& fd, uint64_t number) {
  ThreadsOwn& own = threads_own();
  if (own.number == number) return own.file;
  own.number = number;
  own.file = open_again(fd, O_RDONLY);
  if (own.file) ::posix_fadvise(own.file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return own.file;
}

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

/// Calls read(data, bytes, done) for each block. Data is in `to`, or in a buffer if `to` is null.
template <class Read>
void read_blocks(uint8_t* to, int64_t bytes, const DirectFile::BlockSink& sink, const Read& read) {
  for (int64_t done = 0, part; done < bytes; done += part) {
    part = std::min(bytes - done, cached_block);
    uint8_t* data = to ? to + done : read_buffer();
    read(data, part, done);
    if (sink) sink(data, part);
  }
}

/// The memory that a direct read fills. `to` has the same position within a page as `at`. In order:
/// - a page of `edges` if the range begins within a page
/// - the whole pages of `to`
/// - another page of `edges` if the range ends within a page
class PagesInPlace {
 public:
  PagesInPlace(uint8_t* to, int64_t at, int64_t end, uint8_t* edges)
      : to_(to),
        edges_(edges),
        head_(page_end(at) - at),
        tail_(end - page_begin(end)),
        body_(end - at - head_ - tail_) {}

  /// Whether there is a whole page between the edges.
  bool any() const { return body_ > 0; }
  ssize_t read(const Fd& fd, int64_t begin) const {
    iovec parts[3];
    int count = 0;
    if (head_) parts[count++] = {edges_, size_t(page)};
    parts[count++] = {to_ + head_, size_t(body_)};
    if (tail_) parts[count++] = {edges_ + page, size_t(page)};
    return ::preadv(fd.get(), parts, count, begin);
  }
  void take_edges() const {
    if (head_) std::memcpy(to_, edges_ + page - head_, size_t(head_));
    if (tail_) std::memcpy(to_ + head_ + body_, edges_ + page, size_t(tail_));
  }

 private:
  uint8_t *to_, *edges_;
  int64_t head_, tail_, body_;
};

/// Starts writing the cached pages of a range to disk. The pages at both ends are left out: other threads may still
/// write to them, and then the disk would write them twice. Nothing waits and nothing is promised; sync() does that.
void begin_writing(const Fd& fd, int64_t offset, int64_t bytes) {
  const int64_t begin = page_end(offset), end = page_begin(offset + bytes);
  const Slots::Left slot;
  if (begin < end) ::sync_file_range(fd.get(), begin, end - begin, SYNC_FILE_RANGE_WRITE);
}

/// The number of bytes written; fewer than requested if the file system refuses direct writes.
int64_t write_direct(const Fd& fd, const uint8_t* from, int64_t bytes, int64_t offset) {
  int64_t done = 0;
  while (done < bytes) {
    const auto part = size_t(std::min(bytes - done, int64_t(1) << 30));
    const int64_t put = while_others_work([&] { return ::pwrite(fd.get(), from + done, part, offset + done); });
    if (put == -EINVAL) break;  // also after a short write that ended within a page
    if (put <= 0) fail_errno(fd.name(), "cannot write", put == 0 ? ENOSPC : int(-put));
    done += put;
  }
  return done;
}

}  // namespace

DirectFile::DirectFile(Fd fd, Writes writes)
    : fd_(std::move(fd)),
      writes_(writes),
      tells_what_is_cached_(mxfp4::tells_what_is_cached(fd_)),
      keeps_all_(writes == Writes::kept),
      kept_(writes == Writes::kept ? INT64_MAX : 0),
      number_(next_number()) {
  if (fd_.stat().st_size < least_file) return;
  const Medium medium = medium_of(fd_);
  in_memory_ = medium == Medium::memory;
  on_server_ = medium == Medium::server;
  if (in_memory_) return;
  direct_ = open_direct(fd_);
  if (!direct_) return;
  direct_writes_ = writes_ == Writes::direct && has_small_pages(fd_);
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_RANDOM);  // no read-ahead: few reads use the cache
}

/// The number of bytes read; fewer than requested if the disk returned less.
int64_t DirectFile::read_direct(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  uint8_t* buffer = read_buffer();
  const bool congruent = to && (reinterpret_cast<uintptr_t>(to) - uintptr_t(offset)) % page == 0;
  int64_t done = 0;
  while (done < bytes) {
    const int64_t at = offset + done, begin = page_begin(at);
    const int64_t ask = std::min(page_end(offset + bytes) - begin, block);
    const int64_t want = std::min(offset + bytes - begin, ask);  // the file may end within the last page
    const PagesInPlace pages(to ? to + done : nullptr, at, begin + want, buffer);
    const bool in_place = congruent && pages.any();
    const int64_t got = while_others_work(
        [&] { return in_place ? pages.read(direct_, begin) : ::pread(direct_.get(), buffer, size_t(ask), begin); });
    if (got < want) break;
    const int64_t part = begin + want - at;
    const uint8_t* data = in_place ? to + done : buffer + (at - begin);
    if (in_place)
      pages.take_edges();
    else if (to)
      std::memcpy(to + done, data, size_t(part));
    for (int64_t i = 0; sink && i < part; i += cached_block) sink(data + i, std::min(part - i, cached_block));
    done += part;
  }
  return done;
}

bool DirectFile::is_cached(int64_t bytes, int64_t offset) const {
  return in_memory_ || is_range_cached(fd_, offset, bytes);
}

void DirectFile::keep_reads(int64_t bytes) {
  kept_ = bytes;
  keeps_all_ = bytes >= fd_.stat().st_size;
}

int64_t DirectFile::cached_bytes(int64_t bytes, int64_t offset) const {
  if (in_memory_) return bytes;
  return tells_what_is_cached_ ? CachedPages(fd_, offset, bytes).cached_bytes(offset, bytes) : -1;
}

/// Reads from the page cache, in blocks, and waits for missing pages.
void DirectFile::read_cached(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  read_blocks(to, bytes, sink, [&](uint8_t* data, int64_t part, int64_t done) { fd_.read(data, part, offset + done); });
}

/// Reads through the page cache, which lacks most of the range.
void DirectFile::fill_and_read(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  begin_reading(fd_, offset, bytes);
  read_blocks(to, bytes, sink, [&](uint8_t* data, int64_t part, int64_t done) {
    const Slots::Left slot;
    fd_.read(data, part, offset + done);
  });
}

/// Reads through the page cache and keeps the pages. On a file server the shared descriptor is used, since the server
/// would have to open the file for each thread. So it is if only part of the file is kept: read-ahead would exceed that
/// part.
void DirectFile::fill_and_keep(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  if (on_server_ || !keeps_all_) return fill_and_read(to, bytes, offset, sink);
  const Fd& own = own_descriptor(fd_, number_);
  if (!own) return fill_and_read(to, bytes, offset, sink);
  read_blocks(to, bytes, sink, [&](uint8_t* data, int64_t part, int64_t done) {
    const Slots::Left slot;
    own.read(data, part, offset + done);
  });
}

void DirectFile::read_run(uint8_t* to, const ReadRun& run, const CachedPages& pages, const BlockSink& sink) const {
  int64_t at = run.begin;
  if (run.way != Way::cached && run.end <= kept_) return fill_and_keep(to, run.end - at, at, sink);
  if (run.way == Way::direct && direct_) at += read_direct(to, run.end - at, at, sink);
  if (at == run.end) return;
  uint8_t* const rest = to ? to + (at - run.begin) : nullptr;
  if (run.way == Way::cached) return read_cached(rest, run.end - at, at, sink);
  fill_and_read(rest, run.end - at, at, sink);
  pages.drop_missing(at, run.end);
}

void DirectFile::read(void* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  auto* out = static_cast<uint8_t*>(to);
  if (in_memory_ || bytes < least_read) return read_cached(out, bytes, offset, sink);
  if (!tells_what_is_cached_)
    return offset + bytes <= kept_ ? fill_and_keep(out, bytes, offset, sink) : fill_and_read(out, bytes, offset, sink);
  for (int64_t done = 0, part; done < bytes; done += part) {  // in steps: pages may be evicted during the read
    part = std::min(bytes - done, block - (offset + done) % block);
    const CachedPages pages(fd_, offset + done, part);
    for (const ReadRun& run : pages.runs()) read_run(out ? out + (run.begin - offset) : nullptr, run, pages, sink);
  }
}

void DirectFile::write_cached(const uint8_t* from, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  const int64_t most = writes_ != Writes::direct && !in_memory_ ? page_cache_write : cached_block;
  for (int64_t done = 0, part; done < bytes; done += part) {
    // Each part ends at a page: if a page is written in two parts, NFS reads its rest between them.
    part = std::min(bytes - done, most - (offset + done) % most);
    if (sink) sink(from + done, part);
    std::optional<Slots::Left> slot;
    if (!in_memory_) slot.emplace();
    fd_.write(from + done, part, offset + done);
  }
}

void DirectFile::write(const void* data, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  const auto* from = static_cast<const uint8_t*>(data);
  const int64_t begin = page_end(offset) - offset, end = page_begin(offset + bytes) - offset;
  const bool congruent = (reinterpret_cast<uintptr_t>(from) - uintptr_t(offset)) % page == 0;
  if (!direct_writes_ || !congruent || begin >= end) {
    write_cached(from, bytes, offset, sink);
    if (!in_memory_) begin_writing(fd_, offset, bytes);
    return;
  }
  if (sink) sink(from, bytes);
  fd_.write(from, begin, offset);
  const int64_t done = begin + write_direct(direct_, from + begin, end - begin, offset + begin);
  fd_.write(from + done, bytes - done, offset + done);
}

WriteWay DirectFile::write_way() const {
  if (in_memory_) return {"memory", "tmpfs has no disk"};
  if (direct_writes_)
    return {"direct", "faster than through the page cache in measurements, and evicts nothing from it"};
  if (writes_ == Writes::kept)
    return {"cached", "memory has room for OUT, and the next start then reads it from there"};
  return {"cached", direct_ ? "the blocks of the file system are larger than pages"
                            : "the file system has no direct writes, or the files are small"};
}

void DirectFile::finish() {
  fd_.sync();
  if (writes_ != Writes::kept) ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (direct_) direct_.close();
  fd_.close();
}

}  // namespace mxfp4
