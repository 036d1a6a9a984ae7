// Which pages of a file are in the page cache. This decides how a range is best read.
#pragma once

#include <vector>

#include "src/base/file.h"

namespace mxfp4 {

/// Whether the system tells this user which pages of the file are cached. Linux 5.2 and later report every page of
/// another user's file as cached, unless this user may write the file.
bool tells_what_is_cached(const Fd& fd);

/// Whether all of a range is in the page cache.
bool is_range_cached(const Fd& fd, int64_t offset, int64_t bytes);

enum class Way { cached, fill, direct };

/// Bytes [begin, end) of a file that are best read in one way:
///   cached  all is in the page cache
///   fill    little is missing: read through the cache, then drop_missing()
///   direct  much is missing: past the cache
struct ReadRun {
  int64_t begin, end;
  Way way;
};

/// The pages that hold bytes [offset, offset + bytes) of a file, in their state at construction.
class CachedPages {
 public:
  CachedPages(const Fd& fd, int64_t offset, int64_t bytes);
  /// The range in runs, in order. All but its own ends are multiples of 256 KiB.
  std::vector<ReadRun> runs() const;
  /// How many bytes of a range were in the page cache. Bytes outside the range of this object are not counted.
  int64_t cached_bytes(int64_t offset, int64_t bytes) const;
  /// Removes pages of [begin, end) from the page cache that were missing from it at construction.
  void drop_missing(int64_t begin, int64_t end) const;

 private:
  size_t index(int64_t at) const;

  const Fd& fd_;
  int64_t offset_, bytes_, begin_;       // begin_: of the first page
  std::vector<unsigned char> resident_;  // of each page: bit 0
};

}  // namespace mxfp4
