// Host bytes on their way to a GPU's memory, for threads that read files.
#pragma once

#include <cstdint>
#include <memory>

namespace mxfp4 {

/// Page-locked buffers of one thread: while one is copied from, the next is filled.
class Upload {
 public:
  static constexpr int buffers = 2;
  virtual ~Upload() = default;
  virtual uint8_t* buffer(int index) = 0;
  /// Begins to copy the first `bytes` bytes of a buffer to `to`, after all former copies.
  virtual void copy(int index, uint8_t* to, int64_t bytes) = 0;
  /// Returns when the last copy of a buffer is done.
  virtual void wait(int index) = 0;
};

/// Uploads to the memory of one GPU. Throws if check_cuda() throws.
std::unique_ptr<Upload> open_upload(int gpu, int64_t buffer_bytes);

}  // namespace mxfp4
