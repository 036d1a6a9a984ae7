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
#include "src/io/direct_file.h"

namespace mxfp4 {

struct FilePart {
  std::string file;
  int64_t offset, bytes;    // at least one
  uint8_t* to;              // null: its bytes are only hashed
  uint8_t* hash = nullptr;  // where its XXH3-128 goes, 16 bytes in canonical form; null: it is not wanted
};

class FileReader {
 public:
  // Bytes of one read and of one copy to a GPU. Beside a busy Python thread 4 MiB reach 47 GB/s, 1 MiB 36.
  static constexpr int64_t piece = 4 << 20;

  using OpenUpload = std::function<std::unique_ptr<Upload>()>;
  /// open: called by each thread for an Upload with buffers of a piece; null: parts go into the host's memory.
  explicit FileReader(int threads, OpenUpload open = {});
  /// Waits for what is being read; what was not begun is not read any more.
  ~FileReader();
  FileReader(const FileReader&) = delete;

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
  /// What one thread reads: a part that is hashed, or a piece of another.
  struct Unit {
    Request* request;
    const DirectFile* file;
    FilePart part;
  };
  class Lane;

  const DirectFile& opened(const std::string& file);
  void work();
  /// The next unit. None: there is none now (with `wait`: none will come).
  std::optional<Unit> next(bool wait);
  void done(Request& request, std::exception_ptr error);

  OpenUpload open_;
  std::map<std::string, DirectFile> files_;  // used by begin() alone
  std::mutex mutex_;
  std::condition_variable more_, less_;  // units; requests that are not done
  std::deque<Unit> units_;
  std::map<int64_t, Request> requests_;
  int64_t requests_begun_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mxfp4
