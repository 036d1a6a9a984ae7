// Large files moved in large blocks at any offsets, by any thread, past the page cache where that is possible: a run
// then goes at the disk's speed and pushes nothing else out of memory.
//
// Reading, by blocks of 256 KiB: what is in the page cache comes from there; of the rest, a block of which much is
// missing straight from the disk, and one of which little is missing through the cache. What that brought in is dropped
// again, and what was there before stays. The same holds where a file system cannot do without the cache. (The system
// does not say what is cached of another user's file that may not be written; such files are read through the cache, as
// cp does.) Of a file that is to stay in the page cache, all that is missing is read through it, and stays.
//
// Writing: whole pages go straight to the disk, the two broken pages at a range's ends through the cache. No page is
// reached by both ways, so that the two cannot disagree. Where nobody waits for the disk, all goes through the cache.
// Where somebody does, what goes through the cache (all of it on NFS) is begun to be written at once: with a sync that
// began it, a file server would wait first, and the run afterwards.
#pragma once

#include <functional>

#include "src/base/file.h"

namespace mxfp4 {

class CachedPages;
struct ReadRun;

/// Whether what is written has to be on disk at the end.
enum class Sync { yes, no };

/// Which way writes are to take where the file system has both. kept: through the page cache, where they stay, and to
/// the disk at once.
enum class Writes { direct, cached, kept };

/// How a file is written, "direct" (past the page cache), "cached" (through it) or "memory" (tmpfs), and why.
struct WriteWay {
  const char *way, *why;
};

class DirectFile {
 public:
  /// What begins and ends a direct transfer, in the file and in memory.
  static constexpr int64_t page = 4096;

  DirectFile() = default;
  /// Takes over an open file.
  DirectFile(Fd fd, Writes writes = Writes::direct);
  /// From now on, what is read of the first `bytes` bytes stays in the page cache.
  void keep_reads(int64_t bytes);

  /// Called with the blocks of a read or write, in order, each while it is still in the processor's caches.
  using BlockSink = std::function<void(const uint8_t* block, int64_t bytes)>;

  /// As Fd::read. `to` null: the blocks are only handed to `sink`. From the disk pages go to where they are to be where
  /// `to` lies in its page as `offset` does; else they are copied there.
  void read(void* to, int64_t bytes, int64_t offset, const BlockSink& sink = {}) const;
  /// Whether the file is in memory and nowhere else, and large.
  bool is_on_tmpfs() const { return in_memory_; }
  /// Whether a read of that range comes from memory, where small reads cost no more than large ones.
  bool is_cached(int64_t bytes, int64_t offset) const;
  /// How many bytes of a range come from memory; -1 if the system does not tell this user.
  int64_t cached_bytes(int64_t bytes, int64_t offset) const;
  /// Whether reads leave nothing in the page cache, not even for a moment.
  bool reads_past_cache() const { return direct_ && kept_ == 0; }
  /// As Fd::write. Pages go straight to the disk where `from` lies in its page as `offset` does.
  void write(const void* from, int64_t bytes, int64_t offset, const BlockSink& sink = {}) const;
  WriteWay write_way() const;
  /// Whether write() takes pages straight to the disk, for which they must lie in memory as in the file.
  bool writes_pages() const { return direct_writes_; }
  /// Brings all to disk and, unless it is to be kept, out of the page cache, if that is asked for; closes the file.
  void finish(Sync sync = Sync::yes);
  const Fd& fd() const { return fd_; }

 private:
  int64_t read_direct(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void read_cached(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void fill_and_read(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void fill_and_keep(uint8_t* to, int64_t bytes, int64_t offset, const BlockSink& sink) const;
  void read_run(uint8_t* to, const ReadRun& run, const CachedPages& pages, const BlockSink& sink) const;
  bool writes_wait() const { return !in_memory_ && writes_ != Writes::cached; }
  void write_cached(const uint8_t* from, int64_t bytes, int64_t offset, const BlockSink& sink) const;

  Fd fd_, direct_;  // the same file twice; no direct_: the file is small, or its file system cannot do it
  Writes writes_ = Writes::direct;
  bool tells_what_is_cached_ = true, direct_writes_ = false, in_memory_ = false, on_server_ = false;
  bool keeps_all_ = false;  // kept_ covers the file
  int64_t kept_ = 0;        // bytes at the file's begin of which reads stay in the page cache
  uint64_t number_ = 0;     // no other DirectFile of this process has it
};

}  // namespace mxfp4
