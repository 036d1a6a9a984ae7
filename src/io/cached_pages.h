// Which pages of a file are in the page cache: what decides how a range is best read.
#pragma once

#include <vector>

#include "src/base/file.h"

namespace mxfp4 {

/// Whether the system tells this user what is cached of the file. Since Linux 5.2 it says of other users' files, unless
/// they may be written, that all is there.
bool tells_what_is_cached(const Fd& fd);

/// Bytes that can be written through the page cache from now on before Linux has their writer wait for the disk; 0
/// where it does not say.
int64_t free_for_dirty_pages();

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

/// The pages that hold bytes [offset, offset + bytes) of a file, as they were when this was made.
class CachedPages {
 public:
  CachedPages(const Fd& fd, int64_t offset, int64_t bytes);
  /// The range in runs, in order. All but its own ends are multiples of 256 KiB.
  std::vector<ReadRun> runs() const;
  /// How many bytes of a range were in the page cache; what is not within the range of this is left out.
  int64_t cached_bytes(int64_t offset, int64_t bytes) const;
  /// Takes pages of [begin, end) that were not there then out of the page cache.
  void drop_missing(int64_t begin, int64_t end) const;

 private:
  size_t index(int64_t at) const;

  const Fd& fd_;
  int64_t offset_, bytes_, begin_;       // begin_: of the first page
  std::vector<unsigned char> resident_;  // of each page: bit 0
};

}  // namespace mxfp4
