// A part of a file that a device reads or writes directly in the page cache, without a copy by the CPU. The driver
// registers memory for one thread at a time and takes 0.03 to 0.08 s per GB. This limits any number of threads to 8 to
// 10 GB/s.
#pragma once

#include <cstdint>
#include <memory>

#include "src/io/direct_file.h"

namespace mxfp4 {

class Device;

class PageCacheMap {
 public:
  /// Maps bytes [offset, offset + bytes) of a file for reading; all of them must be in the page cache. Null, here and
  /// below, if the system or the device cannot map them, or if the file has become shorter.
  static std::unique_ptr<PageCacheMap> for_reading(Device& device, const Fd& fd, int64_t offset, int64_t bytes);
  /// Maps bytes of a file in memory for writing, in large pages, which are much cheaper to register than small pages.
  static std::unique_ptr<PageCacheMap> for_writing(Device& device, const Fd& fd, int64_t offset, int64_t bytes);
  /// Whether this system creates large pages on demand (Linux 6.1 or later). If not, for_writing() returns null.
  static bool can_write();
  PageCacheMap(const PageCacheMap&) = delete;
  ~PageCacheMap();
  /// The address of a byte of the file, for the device only. If another process truncates the file, a CPU that reads
  /// there gets SIGBUS; the device's pages are locked.
  uint8_t* at(int64_t offset) const { return data_ + (offset - begin_); }

 private:
  PageCacheMap() = default;
  bool make(const Fd& fd, int64_t begin, int64_t end, int access);
  bool lock(Device& device, int64_t offset, int64_t bytes, bool writes);

  uint8_t* data_ = nullptr;
  int64_t begin_ = 0, bytes_ = 0;  // of the file, whole pages
  std::shared_ptr<void> lock_;
};

/// Maps a range of a file for a device to read, if all of it is in the page cache.
std::unique_ptr<PageCacheMap> map_to_read(Device& device, const DirectFile& file, int64_t bytes, int64_t offset);
/// Maps bytes of a file that a device will write. Null unless the file is in memory.
std::unique_ptr<PageCacheMap> map_to_write(Device& device, const DirectFile& file, int64_t bytes, int64_t offset);

}  // namespace mxfp4
