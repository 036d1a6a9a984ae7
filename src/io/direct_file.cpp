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
// For the page cache Linux takes pages as large as a write. Larger ones than these are seldom at hand, and a virtual
// machine's host may have to bring them back first.
constexpr int64_t page_cache_write = 64 << 10;
constexpr int64_t least_ahead = 128 << 10;

int64_t page_begin(int64_t at) { return at / page * page; }
int64_t page_end(int64_t at) { return page_begin(at + page - 1); }

/// The same file opened again; none if the system refuses.
Fd open_again(const Fd& fd, int flags) {
  const int twin = ::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), flags | O_CLOEXEC);
  return {twin, fd.name()};
}

/// For direct transfers; none if its file system refuses.
Fd open_direct(const Fd& fd) { return open_again(fd, (::fcntl(fd.get(), F_GETFL) & O_ACCMODE) | O_DIRECT); }

/// Pages of the cache or blocks of the file system that are larger than `page` would be reached by both ways.
bool has_small_pages(const Fd& fd) {
  struct statvfs s;
  return ::sysconf(_SC_PAGESIZE) <= page && ::fstatvfs(fd.get(), &s) == 0 && int64_t(s.f_bsize) <= page;
}

/// Has the file system begin to read a range into the page cache. Linux takes no more than its read-ahead at once,
/// which is 128 KiB where nobody set it.
void begin_reading(const Fd& fd, int64_t offset, int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += least_ahead)
    ::posix_fadvise(fd.get(), offset + done, std::min(bytes - done, least_ahead), POSIX_FADV_WILLNEED);
}

/// What a transfer returns that waits for a disk while others work, again where a signal ended it; -errno for an error.
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

/// What a thread keeps from one read to the next.
struct ThreadsOwn {
  std::unique_ptr<uint8_t, Free> buffer;
  Fd file;              // the file that it read last through the page cache
  uint64_t number = 0;  // that of its DirectFile
};

pthread_key_t key_of_threads() {
  pthread_key_t key;
  const auto end = [](void* own) { delete static_cast<ThreadsOwn*>(own); };
  if (::pthread_key_create(&key, end) != 0) throw std::bad_alloc();
  return key;
}

/// No thread_local: where glibc has no memory to note its destructor, it ends the process.
ThreadsOwn& threads_own() {
  static const pthread_key_t key = key_of_threads();
  if (void* own = ::pthread_getspecific(key)) return *static_cast<ThreadsOwn*>(own);
  auto own = std::make_unique<ThreadsOwn>();
  if (::pthread_setspecific(key, own.get()) != 0) throw std::bad_alloc();
  return *own.release();
}

/// A thread's buffer for the blocks of direct reads, which begin and end at pages while what is asked for need not.
/// Of huge pages, if the system has them: a request to a disk is a list of stretches of memory, and many short ones
/// cost a virtual disk up to half of its speed.
uint8_t* read_buffer() {
  ThreadsOwn& own = threads_own();
  if (own.buffer) return own.buffer.get();
  own.buffer.reset(static_cast<uint8_t*>(std::aligned_alloc(huge_page, block)));
  if (!own.buffer) throw std::bad_alloc();
  ::madvise(own.buffer.get(), size_t(block), MADV_HUGEPAGE);  // if not, it is only slower
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

/// Has read(data, bytes, done) read blocks to where they stay, or into a buffer where `to` is null.
template <class Read>
void read_blocks(uint8_t* to, int64_t bytes, const DirectFile::BlockSink& sink, const Read& read) {
  for (int64_t done = 0, part; done < bytes; done += part) {
    part = std::min(bytes - done, cached_block);
    uint8_t* data = to ? to + done : read_buffer();
    read(data, part, done);
    if (sink) sink(data, part);
  }
}

/// What a direct read fills, in order: a page of `edges` where the file's range begins within a page, whole pages of
/// `to`, which lies in its page as `at` does, and another page of `edges` where the range ends within one.
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

/// Has the system begin to bring to disk what the page cache has of a range, but not the pages at its ends that others
/// may be writing: those would go there twice. Nothing waits, and nothing is promised: that is what sync() is for.
void begin_writing(const Fd& fd, int64_t offset, int64_t bytes) {
  const int64_t begin = page_end(offset), end = page_begin(offset + bytes);
  const Slots::Left slot;
  if (begin < end) ::sync_file_range(fd.get(), begin, end - begin, SYNC_FILE_RANGE_WRITE);
}

/// The bytes that were written; fewer than asked for where the file system refuses direct writes.
int64_t write_direct(const Fd& fd, const uint8_t* from, int64_t bytes, int64_t offset) {
  int64_t done = 0;
  while (done < bytes) {
    const auto part = size_t(std::min(bytes - done, int64_t(1) << 30));
    const int64_t put = while_others_work([&] { return ::pwrite(fd.get(), from + done, part, offset + done); });
    if (put == -EINVAL) break;  // also what a short write that ends within a page leads to
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
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_RANDOM);  // little is read through the cache, and nothing around it
}

/// The bytes that were read; fewer than asked for where the disk did not give all.
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
    if (sink) sink(data, part);
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

/// From the page cache, in blocks; those that it lacks are waited for.
void DirectFile::read_cached(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  read_blocks(to, bytes, sink, [&](uint8_t* data, int64_t part, int64_t done) { fd_.read(data, part, offset + done); });
}

/// Through the page cache, which lacks most.
void DirectFile::fill_and_read(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  begin_reading(fd_, offset, bytes);
  read_blocks(to, bytes, sink, [&](uint8_t* data, int64_t part, int64_t done) {
    const Slots::Left slot;
    fd_.read(data, part, offset + done);
  });
}

/// A file server would have to open the file for each thread. And read-ahead would go beyond the part that is kept.
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
  for (int64_t done = 0, part; done < bytes; done += part) {  // a few at a time: others may evict pages meanwhile
    part = std::min(bytes - done, block - (offset + done) % block);
    const CachedPages pages(fd_, offset + done, part);
    for (const ReadRun& run : pages.runs()) read_run(out ? out + (run.begin - offset) : nullptr, run, pages, sink);
  }
}

void DirectFile::write_cached(const uint8_t* from, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  const int64_t most = writes_ != Writes::direct && !in_memory_ ? page_cache_write : cached_block;
  for (int64_t done = 0, part; done < bytes; done += part) {
    // ends at pages: of a page that is written in two parts NFS reads the rest between them
    part = std::min(bytes - done, most - (offset + done) % most);
    if (sink) sink(from + done, part);
    std::optional<Slots::Left> slot;
    if (writes_wait()) slot.emplace();
    fd_.write(from + done, part, offset + done);
  }
}

void DirectFile::write(const void* data, int64_t bytes, int64_t offset, const BlockSink& sink) const {
  const auto* from = static_cast<const uint8_t*>(data);
  const int64_t begin = page_end(offset) - offset, end = page_begin(offset + bytes) - offset;
  const bool congruent = (reinterpret_cast<uintptr_t>(from) - uintptr_t(offset)) % page == 0;
  if (!direct_writes_ || !congruent || begin >= end) {
    write_cached(from, bytes, offset, sink);
    if (writes_wait()) begin_writing(fd_, offset, bytes);
    return;
  }
  if (sink) sink(from, bytes);
  fd_.write(from, begin, offset);
  const int64_t done = begin + write_direct(direct_, from + begin, end - begin, offset + begin);
  fd_.write(from + done, bytes - done, offset + done);
}

WriteWay DirectFile::write_way() const {
  if (in_memory_) return {"memory", "tmpfs has no disk"};
  if (direct_writes_) return {"direct", "measured sooner than through the page cache, which keeps what it has"};
  if (writes_ == Writes::cached) return {"cached", "the page cache takes all of it, and nothing waits for the disk"};
  if (writes_ == Writes::kept) return {"cached", "memory has room for OUT, which the next start then finds there"};
  return {"cached",
          direct_ ? "its blocks are larger than pages" : "the file system has no other way, or files are small"};
}

void DirectFile::finish(Sync sync) {
  if (sync == Sync::yes) {
    fd_.sync();
    if (writes_ != Writes::kept) ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  if (direct_) direct_.close();
  fd_.close();
}

}  // namespace mxfp4
