// Reads parts of files into the host's or a GPU's memory while the caller does other work.
#pragma once

#include <algorithm>
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
  uint8_t* to;              // null: the bytes are only hashed
  uint8_t* hash = nullptr;  // destination of its XXH3-128, 16 bytes in canonical form; null: no hash
};

/// The bytes that a reader has read. before: the bytes that were in the page cache when their files were opened. now:
/// the bytes that are there at present. Both are -1 if the system does not provide the numbers.
struct CachedBytes {
  int64_t read = 0, before = 0, now = 0;
};

class FileReader {
 public:
  // The bytes of one read and of one copy to a GPU. Beside a busy Python thread, 4 MiB reach 47 GB/s and 1 MiB 36.
  static constexpr int64_t piece = 4 << 20;
  static constexpr int one_process = 12;  // threads
  /// More threads are for processes that share a host. On four GPUs, 16 threads with half a piece were 9 to 17 % faster
  /// than 12 with whole ones, and 9 % slower on one.
  static int64_t piece_for(int threads) { return threads > one_process ? piece / 2 : piece; }

  using OpenUpload = std::function<std::unique_ptr<Upload>()>;
  /// `open`: each thread calls it for an Upload, whose buffers have the size of piece_for(threads). If it is null,
  /// parts go into the host's memory. `room` decides which pages of the files stay in the page cache.
  explicit FileReader(int threads, OpenUpload open = {}, CacheRoom room = {});
  /// Waits for reads in progress; reads that have not begun are dropped.
  ~FileReader();
  FileReader(const FileReader&) = delete;

  /// Like CacheRoom::expect, for files that are not opened yet.
  void expect(int64_t bytes) { room_.expect(bytes); }
  /// The counts of all reads so far. Asks the system for each range that was not cached before.
  CachedBytes cached() const;
  /// The same without that question: `now` is too small.
  CachedBytes counted() const;
  /// Begins to read the parts, in order and after those of earlier requests. Returns the request's number.
  int64_t begin(const std::vector<FilePart>& parts);
  /// Waits until all parts of a request are in memory, and returns the time of the last byte. Throws the request's
  /// first error. To be called once for each request.
  std::chrono::steady_clock::time_point finish(int64_t request);

 private:
  struct Request {
    int64_t left = 0;  // units
    std::exception_ptr error;
    std::chrono::steady_clock::time_point end;
  };
  struct Opened {
    DirectFile file;
    std::optional<CachedPages> before;  // its cached pages; none: the system does not report them
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
  /// The next unit; none if there is none at the moment. With `wait`, none means that there will be no more.
  std::optional<Unit> next(bool wait);
  void done(Request& request, std::exception_ptr error);

  /// The length of the next piece of a part that continues at `offset`. Pieces end at block boundaries of direct reads,
  /// so that each piece is one read of the disk.
  int64_t piece_bytes(int64_t offset, int64_t left) const { return std::min(left, piece_ - offset % piece_); }

  OpenUpload open_;
  CacheRoom room_;
  int64_t piece_;
  std::map<std::string, Opened> files_;  // used by begin() alone
  mutable std::mutex mutex_;
  std::condition_variable more_, less_;  // waits for units; waits for unfinished requests
  std::deque<Unit> units_;
  std::map<int64_t, Request> requests_;
  int64_t requests_begun_ = 0;
  CachedBytes cached_;          // now: only for units that were fully cached before
  std::vector<Range> missing_;  // units that were not fully cached before
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mxfp4
