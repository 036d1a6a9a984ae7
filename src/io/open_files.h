// A list of files of which any number may be in use, although a process may have only so many open: when another is
// wanted, the open file that is not in use and was used longest ago is closed.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "src/io/direct_file.h"

namespace mxfp4 {

class OpenFiles {
 public:
  /// open: called for an index whenever that file is wanted and not open.
  using Open = std::function<DirectFile(size_t index)>;
  /// at_close: called before a file is closed for another. most: files open at once if none of them is in use; 0: what
  /// this process may have, with room for the other lists of a command.
  OpenFiles(size_t count, Open open, std::function<void(DirectFile&)> at_close = {}, size_t most = 0);

  /// Open until the result is gone, at least. From any thread.
  std::shared_ptr<DirectFile> get(size_t index);
  /// Calls work(file) for every file that is open, and closes it. When no file is in use.
  void close_all(const std::function<void(size_t index, DirectFile& file)>& work);

 private:
  struct Entry {
    std::shared_ptr<DirectFile> file;
    uint64_t used = 0;
  };
  void make_room();

  Open open_;
  std::function<void(DirectFile&)> at_close_;
  size_t most_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t open_count_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace mxfp4
