// Files: whole reads and writes with short transfers looped, errors that name file and cause.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace mxfp4 {

/// An open file descriptor, closed at the end of its scope.
class Fd {
 public:
  Fd() = default;
  Fd(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  Fd(Fd&& other) noexcept { swap(other); }
  Fd& operator=(Fd&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  const std::string& name() const { return name_; }
  explicit operator bool() const { return fd_ >= 0; }

  /// A path that leads to the open file, wherever it is by now. It needs /proc.
  std::string proc_path() const;
  /// The path of the open file at this moment; empty without /proc.
  std::string current_path() const;

  /// Reads exactly [offset, offset + bytes); a file that ends before is an error.
  void read(void* to, int64_t bytes, int64_t offset) const;
  void write(const void* from, int64_t bytes, int64_t offset) const;
  /// fsync.
  void sync() const;
  /// close, with its error reported.
  void close();
  struct stat stat() const;

 private:
  void swap(Fd& other) {
    std::swap(fd_, other.fd_);
    std::swap(name_, other.name_);
  }
  int fd_ = -1;
  std::string name_;
};

/// Device and inode, which identify a file or folder under every path that leads to it.
using Identity = std::pair<dev_t, ino_t>;
inline Identity identity_of(const struct stat& s) { return {s.st_dev, s.st_ino}; }

/// The identity and state of a file, compared later to detect a change.
struct FileState {
  int64_t bytes = 0, mtime_ns = 0;
  uint64_t device = 0, inode = 0;
  friend bool operator==(const FileState&, const FileState&) = default;
};
FileState state_of(const struct stat& s);

/// The storage medium of a file system. memory: tmpfs or ramfs, in memory only; server: NFS.
enum class Medium { disk, memory, server };
Medium medium_of(const Fd& fd);

/// The argument of openat(): a name in an open folder, or a path.
struct At {
  int folder;
  std::string name;
};

/// Opens a regular file for reading. A FIFO, a socket, a device or a folder is an error; opening one never waits.
/// shown: the file's name in messages; empty: its path. flags: more flags of open().
Fd open_read(const At& at, std::string shown, int flags);
Fd open_read(const std::string& path, std::string shown = {});
/// Creates a new file. An existing file of this name is removed first, so that nothing is written through a link or
/// into a file that has a second name. mode: as for open().
Fd open_write(const At& at, std::string shown, mode_t mode);
Fd open_write(const std::string& path, std::string shown = {});
/// Opens a file that another run of this user created, with its content; otherwise like open_write().
Fd open_own(const At& at, std::string shown, mode_t mode);
Fd open_own(const std::string& path, std::string shown = {});

/// Whether a path is `dir` itself or in it, by their names alone.
bool is_below(const std::filesystem::path& path, const std::filesystem::path& dir);
/// Returns a file of at most `limit` bytes. Throws Error{input} if it has more.
Fd limited(Fd file, int64_t limit);
/// Opens a file and checks it with limited().
Fd open_text(const std::string& path, int64_t limit, std::string shown = {});
/// The content of a whole (small) file.
std::string read_text(const Fd& file);
std::string read_text(const std::string& path, int64_t limit, std::string shown = {});
/// Writes a new file, syncs and closes it.
void write_text(Fd file, std::string_view text);
/// Opens like open_write(), then writes, syncs and closes.
void write_text(const std::string& path, std::string_view text);

}  // namespace mxfp4
