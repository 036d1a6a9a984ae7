// How fast a file system takes and gives files, moved as convert moves them.
#pragma once

#include <cstdint>
#include <string>

namespace mxfp4 {

/// Bytes per second.
struct DiskSpeed {
  int64_t bytes = 0;  // of the files that were moved
  double write = 0;   // with everything on the disk
  double read = 0;    // with nothing in the page cache, where it can be emptied of a file
  double both = 0;    // bytes read and written, files read while others of their sizes are written
};

/// Writes files of `bytes` in all in `dir`, one for each thread, reads them, and reads them again while others are
/// written, three times; the medians. Takes twice the bytes on the disk; the files are removed. threads: as for
/// worker_count().
DiskSpeed disk_speed(const std::string& dir, int64_t bytes, int threads);

}  // namespace mxfp4
