// A file written once from front to back, past the page cache where the file system allows it: large files then reach
// the disk at its speed and push nothing else out of memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "src/io/direct_file.h"

namespace mxfp4 {

class SequentialFile {
 public:
  /// The space that next() always has.
  static constexpr int64_t room = 1 << 20;

  /// Takes over an empty or preallocated file that is open for writing; only the latter's bytes go past the page cache.
  explicit SequentialFile(Fd fd);
  /// Where the next bytes, at most `room` of them, are to be put.
  uint8_t* next() { return buffer_.get() + used_; }
  /// Makes the `bytes` bytes at next() part of the file.
  void append(int64_t bytes);
  /// Brings everything to disk and closes the file.
  void finish();

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  void write(int64_t bytes);

  DirectFile file_;
  std::unique_ptr<uint8_t, Free> buffer_;
  int64_t used_ = 0, offset_ = 0;  // in the buffer; of the buffer's begin in the file
};

}  // namespace mxfp4
