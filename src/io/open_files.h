// A list of files that can exceed the limit of open files. If a new file is needed at the limit, the list closes an
// unused file: the one that was used longest ago.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "src/io/direct_file.h"

namespace mxfp4 {

class OpenFiles {
 public:
  /// open: called for an index if that file is needed and not open.
  using Open = std::function<DirectFile(size_t index)>;
  /// at_close: called before a file is closed to make room.
  /// most: the number of files that may be open at once, unless all are in use; 0: this process's limit, less a share
  /// for the other lists of a command.
  OpenFiles(size_t count, Open open, std::function<void(DirectFile&)> at_close = {}, size_t most = 0);

  /// Opens the file if necessary. It stays open at least as long as the result exists. From any thread.
  std::shared_ptr<DirectFile> get(size_t index);
  /// Calls work(index, file) for every open file, then closes it. No file may be in use.
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
