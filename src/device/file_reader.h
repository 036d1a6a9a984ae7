// Parts of files on their way into memory, the host's or a GPU's, while their caller has other work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/pack/upload.h"
#include "src/io/cached_pages.h"
#include "src/io/direct_file.h"
#include "src/io/page_cache.h"

namespace mxfp4 {

struct FilePart {
  std::string file;
  int64_t offset, bytes;    // at least one
  uint8_t* to;              // null: its bytes are only hashed
  uint8_t* hash = nullptr;  // where its XXH3-128 goes, 16 bytes in canonical form; null: it is not wanted
};

/// Bytes that a reader has read. before, now: those of them in the page cache when their files were opened, and now; -1
/// if the system does not provide the number.
struct CachedBytes {
  int64_t read = 0, before = 0, now = 0;
};

class FileReader {
 public:
  // Bytes of one read and of one copy to a GPU. Beside a busy Python thread 4 MiB reach 47 GB/s, 1 MiB 36.
  static constexpr int64_t piece = 4 << 20;

  using OpenUpload = std::function<std::unique_ptr<Upload>()>;
  /// open: called by each thread for an Upload with buffers of a piece; null: parts go into the host's memory. room:
  /// decides which of the files' pages stay in the page cache.
  explicit FileReader(int threads, OpenUpload open = {}, CacheRoom room = {});
  /// Waits for reads in progress; reads that have not begun are dropped.
  ~FileReader();
  FileReader(const FileReader&) = delete;

  /// Like CacheRoom::expect, for files that are not opened yet.
  void expect(int64_t bytes) { room_.expect(bytes); }
  /// The counts of all reads so far.
  CachedBytes cached() const;
  /// Begins to read the parts, in order and after those of earlier requests. Returns the request's number.
  int64_t begin(const std::vector<FilePart>& parts);
  /// Returns when all parts of a request are in their place, or throws what failed first. Once for each request. The
  /// result: when its last byte was there.
  std::chrono::steady_clock::time_point finish(int64_t request);

 private:
  struct Request {
    int64_t left = 0;  // units
    std::exception_ptr error;
    std::chrono::steady_clock::time_point end;
  };
  struct Opened {
    DirectFile file;
    std::optional<CachedPages> before;  // what the page cache had of it; none: the system does not tell
  };
  struct Range {
    const Opened* opened;
    int64_t offset, bytes;
  };
  /// The unit of work of one thread: a hashed part, or a piece of another part.
  struct Unit {
    Request* request;
    const Opened* opened;
    FilePart part;
  };
  class Lane;

  /// Counts the bytes of a unit that are in the page cache before it is read.
  void count_cached(const Unit& unit);
  const Opened& opened(const std::string& file);
  void work();
  /// The next unit. None: there is none now (with `wait`: none will come).
  std::optional<Unit> next(bool wait);
  void done(Request& request, std::exception_ptr error);

  OpenUpload open_;
  CacheRoom room_;
  std::map<std::string, Opened> files_;  // used by begin() alone
  mutable std::mutex mutex_;
  std::condition_variable more_, less_;  // units; requests that are not done
  std::deque<Unit> units_;
  std::map<int64_t, Request> requests_;
  int64_t requests_begun_ = 0;
  CachedBytes cached_;          // now: of units that were whole in the page cache before
  std::vector<Range> missing_;  // of the other units
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mxfp4
