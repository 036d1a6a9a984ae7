#include "src/io/sequential_file.h"

#include <cstring>
#include <new>

namespace mxfp4 {

namespace {

constexpr int64_t write_bytes = 4 << 20;  // enough for a disk to be busy

}  // namespace

SequentialFile::SequentialFile(Fd fd)
    : file_(std::move(fd)), buffer_(static_cast<uint8_t*>(std::aligned_alloc(DirectFile::page, write_bytes + room))) {
  if (!buffer_) throw std::bad_alloc();
}

void SequentialFile::write(int64_t bytes) {
  file_.write(buffer_.get(), bytes, offset_);
  offset_ += bytes;
  used_ -= bytes;
  std::memmove(buffer_.get(), buffer_.get() + bytes, size_t(used_));
}

void SequentialFile::append(int64_t bytes) {
  used_ += bytes;
  if (used_ > write_bytes) write(write_bytes);
}

void SequentialFile::finish() {
  write(used_);
  file_.finish();
}

}  // namespace mxfp4
