#include "src/base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_transfer = 0x7ffff000;  // what Linux moves in one call

constexpr int create_new = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;

/// A descriptor, or -1 and errno.
int try_to_open(const std::string& path, int flags) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

Fd open_file(const std::string& path, std::string name, int flags, const char* action) {
  if (name.empty()) name = path;
  const int fd = try_to_open(path, flags);
  if (fd < 0) fail_errno(name, action, errno);
  return {fd, std::move(name)};
}

/// A new file; none where something has the name.
Fd try_to_create(const std::string& path, const std::string& name) {
  const int fd = try_to_open(path, create_new);
  if (fd < 0 && errno != EEXIST) fail_errno(name, "cannot create", errno);
  return {fd, name};
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

void Fd::read(void* to, int64_t bytes, int64_t offset) const {
  auto* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, p, size_t(std::min(bytes, max_transfer)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(name_, "cannot read", errno);
    if (got == 0) fail(ErrorKind::io, "{}: ends at byte {}, {} more expected; did it change?", name_, offset, bytes);
    p += got;
    offset += got;
    bytes -= got;
  }
}

void Fd::write(const void* from, int64_t bytes, int64_t offset) const {
  auto* p = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(fd_, p, size_t(std::min(bytes, max_transfer)), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = ENOSPC;
    if (put <= 0) fail_errno(name_, "cannot write", errno);
    p += put;
    offset += put;
    bytes -= put;
  }
}

void Fd::sync() const {
  while (::fsync(fd_) != 0)
    if (errno != EINTR) fail_errno(name_, "cannot sync to disk", errno);
}

void Fd::close() {
  const int fd = fd_;
  fd_ = -1;
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail_errno(name_, "cannot close", errno);
}

struct stat Fd::stat() const {
  struct stat s;
  if (::fstat(fd_, &s) != 0) fail_errno(name_, "cannot stat", errno);
  return s;
}

FileState state_of(const struct stat& s) {
  return {s.st_size, int64_t(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec, s.st_dev, s.st_ino};
}

Medium medium_of(const Fd& fd) {
  struct statfs s;
  if (::fstatfs(fd.get(), &s) != 0) return Medium::disk;
  if (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC) return Medium::memory;
  return s.f_type == NFS_SUPER_MAGIC ? Medium::server : Medium::disk;
}

Fd open_read(const std::string& path, std::string name) {
  return open_file(path, std::move(name), O_RDONLY | O_NONBLOCK, "cannot open");  // a FIFO must not hang
}

Fd open_write(const std::string& path, std::string name) {
  if (name.empty()) name = path;
  if (Fd fd = try_to_create(path, name)) return fd;  // mostly: a file server is not asked first what is there
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_errno(name, "cannot replace", errno);
  return open_file(path, std::move(name), create_new, "cannot create");
}

Fd open_own(const std::string& path, std::string name) {
  if (name.empty()) name = path;
  if (Fd fd = try_to_create(path, name)) return fd;
  struct stat s;
  const bool own = ::lstat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 1 && s.st_uid == ::geteuid();
  if (!own) return open_write(path, std::move(name));
  Fd fd = open_file(path, std::move(name), O_RDWR | O_NOFOLLOW, "cannot open");
  ::fsync(fd.get());  // NFS says here, once, what the earlier run could not write; this run writes that again
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);  // which the page cache may still show as written
  return fd;
}

Fd open_text(const std::string& path, int64_t limit, std::string name) {
  Fd file = open_read(path, std::move(name));
  const struct stat s = file.stat();
  if (!S_ISREG(s.st_mode)) fail(ErrorKind::input, "{}: not a regular file", file.name());
  if (s.st_size > limit)
    fail(ErrorKind::input, "{}: {} bytes, at most {} expected", file.name(), int64_t(s.st_size), limit);
  return file;
}

std::string read_text(const std::string& path, int64_t limit, std::string name) {
  const Fd fd = open_text(path, limit, std::move(name));
  const int64_t bytes = fd.stat().st_size;
  std::string text(size_t(bytes), '\0');
  fd.read(text.data(), bytes, 0);
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  Fd fd = open_write(path);
  fd.write(text.data(), int64_t(text.size()), 0);
  fd.sync();
  fd.close();
}

bool is_below(const std::filesystem::path& path, const std::filesystem::path& dir) {
  return std::mismatch(dir.begin(), dir.end(), path.begin(), path.end()).first == dir.end();
}

bool has_text(const std::string& path, std::string_view text) {
  return std::filesystem::is_regular_file(path) && std::filesystem::file_size(path) == text.size() &&
         read_text(path, int64_t(text.size())) == text;
}

}  // namespace mxfp4
