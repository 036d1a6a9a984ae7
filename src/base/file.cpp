#include "src/base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_transfer = 0x7ffff000;  // the most that Linux transfers in one call

constexpr int create_new = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;

/// A descriptor, or -1 and errno.
int try_to_open(const At& at, int flags, mode_t mode = 0) {
  int fd;
  do fd = ::openat(at.folder, at.name.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

/// Creates a file; none if the name is taken.
Fd try_to_create(const At& at, const std::string& shown, mode_t mode) {
  const int fd = try_to_open(at, create_new, mode);
  if (fd < 0 && errno != EEXIST) fail_errno(shown, "cannot create", errno);
  return {fd, shown};
}

Fd opened(int fd, std::string shown, const char* action) {
  if (fd < 0) fail_errno(shown, action, errno);
  return {fd, std::move(shown)};
}

At at_path(const std::string& path) { return {AT_FDCWD, path}; }
constexpr mode_t by_umask = 0666;

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::string Fd::proc_path() const { return fmt::format("/proc/self/fd/{}", fd_); }

std::string Fd::current_path() const {
  char path[PATH_MAX];
  const ssize_t bytes = ::readlink(proc_path().c_str(), path, sizeof path);
  return bytes > 0 && bytes < ssize_t(sizeof path) ? std::string(path, size_t(bytes)) : std::string();
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

Fd open_read(const At& at, std::string shown, int flags) {
  Fd fd(try_to_open(at, O_RDONLY | O_NONBLOCK | O_NOCTTY | flags), std::move(shown));  // a FIFO must not hang
  const bool is_special = fd ? !S_ISREG(fd.stat().st_mode) : errno == ENXIO;           // a socket cannot be opened
  if (is_special) fail(ErrorKind::input, "{}: not a regular file", fd.name());
  if (!fd) fail_errno(fd.name(), "cannot open", errno);
  return fd;
}

Fd open_read(const std::string& path, std::string shown) {
  return open_read(at_path(path), shown.empty() ? path : std::move(shown), 0);
}

Fd open_write(const At& at, std::string shown, mode_t mode) {
  if (Fd fd = try_to_create(at, shown, mode)) return fd;  // usual case, with one request to a file server
  if (::unlinkat(at.folder, at.name.c_str(), 0) != 0 && errno != ENOENT) fail_errno(shown, "cannot replace", errno);
  return opened(try_to_open(at, create_new, mode), std::move(shown), "cannot create");
}

Fd open_write(const std::string& path, std::string shown) {
  return open_write(at_path(path), shown.empty() ? path : std::move(shown), by_umask);
}

Fd open_own(const At& at, std::string shown, mode_t mode) {
  if (Fd fd = try_to_create(at, shown, mode)) return fd;
  struct stat s;
  const bool is_own = ::fstatat(at.folder, at.name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode) &&
                      s.st_nlink == 1 && s.st_uid == ::geteuid();
  if (!is_own) return open_write(at, std::move(shown), mode);
  Fd fd = opened(try_to_open(at, O_RDWR | O_NOFOLLOW), std::move(shown), "cannot open");
  ::fsync(fd.get());  // NFS reports here, once, failed writes of the other run; this run repeats them
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);  // the page cache may still contain unwritten bytes
  return fd;
}

Fd open_own(const std::string& path, std::string shown) {
  return open_own(at_path(path), shown.empty() ? path : std::move(shown), by_umask);
}

Fd limited(Fd file, int64_t limit) {
  if (const int64_t bytes = file.stat().st_size; bytes > limit)
    fail(ErrorKind::input, "{}: {} bytes, at most {} expected", file.name(), bytes, limit);
  return file;
}

Fd open_text(const std::string& path, int64_t limit, std::string shown) {
  return limited(open_read(path, std::move(shown)), limit);
}

std::string read_text(const Fd& file) {
  std::string text(size_t(file.stat().st_size), '\0');
  file.read(text.data(), int64_t(text.size()), 0);
  return text;
}

std::string read_text(const std::string& path, int64_t limit, std::string shown) {
  return read_text(open_text(path, limit, std::move(shown)));
}

void write_text(Fd file, std::string_view text) {
  file.write(text.data(), int64_t(text.size()), 0);
  file.sync();
  file.close();
}

void write_text(const std::string& path, std::string_view text) { write_text(open_write(path), text); }

bool is_below(const std::filesystem::path& path, const std::filesystem::path& dir) {
  return std::mismatch(dir.begin(), dir.end(), path.begin(), path.end()).first == dir.end();
}

}  // namespace mxfp4
