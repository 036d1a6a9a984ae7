// Reads and writes large files in large blocks at any offsets, from any thread. If possible the page cache is bypassed:
// a run then has the speed of the disk and evicts nothing else from memory.
//
// Reads choose a source for each block of 256 KiB:
// - Cached pages are read from the page cache.
// - A block with many missing pages is read directly from the disk.
// - A block with few missing pages is read through the cache, and so is every block if the file system has no direct
// reads. The pages that this added to the cache are dropped afterwards; pages that were cached before stay.
//
// The system does not report the cached pages of another user's read-only file. Such a file is read through the cache,
// as cp does. If a file is to stay in the page cache, its missing pages are read through the cache and kept.
//
// Writes send whole pages directly to the disk, and the partial pages at both ends of a range through the cache. No
// page takes both ways, so the two ways cannot disagree. If nobody waits for the disk, all pages go through the cache.
// If somebody waits, pages in the cache (on NFS, all pages) are sent to the disk immediately. If only the final sync
// sent them, the file server would be idle during the run, and the run would wait at its end.
#pragma once

#include <functional>

#include "src/base/file.h"

namespace mxfp4 {

class CachedPages;
struct ReadRun;

/// The way of writes if both ways are possible. kept: through the page cache, with the pages kept there and sent to
/// the disk immediately.
enum class Writes { direct, kept };

/// How a file is written, "direct" (past the page cache), "cached" (through it) or "memory" (tmpfs), and why.
struct WriteWay {
  const char *way, *why;
};

class DirectFile {
 public:
  /// Direct transfers begin and end at multiples of this, in the file and in memory.
  static constexpr int64_t page = 4096;

  DirectFile() = default;
  /// Takes over an open file.
  DirectFile(Fd fd, Writes writes = Writes::direct);
  /// Reads of the first `bytes` bytes stay in the page cache after this call.
  void keep_reads(int64_t bytes);

  /// Called with the blocks of a read or write, in order, each while it is still in the processor's caches.
  using BlockSink = std::function<void(const uint8_t* block, int64_t bytes)>;

  /// As Fd::read. `to` null: the blocks are only handed to `sink`. If `to` and `offset` have the same position within a
  /// page, the disk writes pages directly into `to`; else they are copied there.
  void read(void* to, int64_t bytes, int64_t offset, const BlockSink& sink = {}) const;
  /// Whether the file is large and on tmpfs, so that only memory holds it.
  bool is_on_tmpfs() const { return in_memory_; }
  /// Whether a read of that range comes from memory, where small reads cost no more than large ones.
  bool is_cached(int64_t bytes, int64_t offset) const;
  /// How many bytes of a range come from memory; -1 if the system does not tell this user.
  int64_t cached_bytes(int64_t bytes, int64_t offset) const;
  /// As Fd::write. Pages go directly to the disk if `from` and `offset` have the same position within a page.
  void write(const void* from, int64_t bytes, int64_t offset, const BlockSink& sink = {}) const;
  WriteWay write_way() const;
  /// Whether write() sends pages directly to the disk. They must have the same position within a page in memory as in
  /// the file.
  bool writes_pages() const { return direct_writes_; }
  /// Syncs the file, drops its pages from the page cache unless they are to be kept, and closes it.
  void finish();
  const Fd& fd() const { return fd_; }

 private:
  int64_t read_direct(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void read_cached(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void fill_and_read(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void fill_and_keep(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void read_run(uint8_t* to, const ReadRun& run, const CachedPages& pages, const BlockSink& sink) const;
  void write_cached(const uint8_t* from, int64_t bytes, int64_t offset, const BlockSink& sink) const;

  Fd fd_, direct_;  // the same file twice; no direct_: the file is small, or its file system cannot do it
  Writes writes_ = Writes::direct;
  bool tells_what_is_cached_ = true, direct_writes_ = false, in_memory_ = false, on_server_ = false;
  bool keeps_all_ = false;  // kept_ covers the file
  int64_t kept_ = 0;        // bytes at the file's begin; reads of these stay in the page cache
  uint64_t number_ = 0;     // no other DirectFile of this process has it
};

}  // namespace mxfp4
