// Whether files that are read or written stay in the page cache, where the next program that reads them finds them.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/memory_room.h"

namespace mxfp4 {

/// automatic: if memory has room for them.
enum class PageCache { automatic, yes, no };

/// Throws Error{usage} if MXFP4_PACK_PAGE_CACHE is not auto, yes or no; automatic if it is not set or empty.
PageCache page_cache_of_environment();

/// Which files of a run stay: all if memory has room for all that the run is expected to read or write, else none. In
/// too little room each file would drive others out before their next reading.
class CacheRoom {
 public:
  /// None stays.
  CacheRoom() = default;
  /// room: of memory. An eighth of it is left to others.
  explicit CacheRoom(PageCache setting, int64_t room = memory_room());
  /// How many bytes the run reads or writes, all processes together. Without this, files stay in the order of stays().
  void expect(int64_t bytes) { expected_ = bytes; }
  /// How many bytes at the begin of a file stay.
  int64_t stays(int64_t file_bytes);
  /// Whether all stays of a run of this many bytes.
  bool holds(int64_t bytes) const { return bytes <= room_; }

 private:
  int64_t room_ = 0, expected_ = 0, begun_ = 0;
};

}  // namespace mxfp4
