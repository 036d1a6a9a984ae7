// A file written once from front to back. If the file system can, the page cache is bypassed: a large file then reaches
// the disk at its full speed and evicts nothing else from memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "src/io/direct_file.h"

namespace mxfp4 {

class SequentialFile {
 public:
  /// The space in bytes at next().
  static constexpr int64_t room = 1 << 20;

  /// Takes over an empty or preallocated file that is open for writing. Only preallocated files bypass the page cache.
  explicit SequentialFile(Fd fd);
  /// The address for the next bytes, at most `room` of them.
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
