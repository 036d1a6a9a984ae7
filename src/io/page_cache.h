// Whether files that are read or written stay in the page cache, so that the next program finds them there.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/memory_room.h"

namespace mxfp4 {

/// automatic: files stay if memory has room for them.
enum class PageCache { automatic, yes, no };

/// The setting of MXFP4_PACK_PAGE_CACHE: auto, yes or no. automatic if it is not set or empty. Throws Error{usage} for
/// any other text.
PageCache page_cache_of_environment();

/// Decides which files of a run stay: all if memory has room for everything that the run is expected to read or write,
/// else none. In less memory each file would evict others before their next use.
class CacheRoom {
 public:
  /// No file stays.
  CacheRoom() = default;
  /// room: free memory in bytes. One eighth of it is left to other programs.
  explicit CacheRoom(PageCache setting, int64_t room = memory_room());
  /// The bytes that the run reads or writes, in all processes together. Without this call, files stay in the order of
  /// stays().
  void expect(int64_t bytes) { expected_ = bytes; }
  /// The number of bytes at the begin of a file that stay.
  int64_t stays(int64_t file_bytes);
  /// Whether everything stays if a run has this number of bytes.
  bool holds(int64_t bytes) const { return bytes <= room_; }

 private:
  int64_t room_ = 0, expected_ = 0, begun_ = 0;
};

}  // namespace mxfp4
