#include "src/sequential_file.h"

#include <fcntl.h>

#include <cstring>
#include <new>

namespace mxfp4 {

namespace {

constexpr int64_t page = 4096;            // direct writes begin and end at multiples of it, in the file and in memory
constexpr int64_t write_bytes = 4 << 20;  // enough for a disk to be busy

/// Whether writes go past the page cache. A file system that cannot do it goes on as before.
void set_direct(const Fd& fd, bool direct) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags >= 0) ::fcntl(fd.get(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
}

}  // namespace

SequentialFile::SequentialFile(Fd fd)
    : fd_(std::move(fd)), buffer_(static_cast<uint8_t*>(std::aligned_alloc(page, write_bytes + room))) {
  if (!buffer_) throw std::bad_alloc();
  set_direct(fd_, true);
}

void SequentialFile::write(int64_t bytes) {
  fd_.write(buffer_.get(), bytes, offset_);
  offset_ += bytes;
  used_ -= bytes;
  std::memmove(buffer_.get(), buffer_.get() + bytes, size_t(used_));
}

void SequentialFile::append(int64_t bytes) {
  used_ += bytes;
  if (used_ > write_bytes) write(write_bytes);
}

void SequentialFile::finish() {
  write(used_ / page * page);
  set_direct(fd_, false);
  write(used_);
  fd_.sync();
  fd_.close();
}

}  // namespace mxfp4
