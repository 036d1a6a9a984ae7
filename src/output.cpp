#include "src/output.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "src/error.h"
#include "src/log.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

bool contains(const fs::path& dir, const fs::path& path) {
  const auto [end, rest] = std::mismatch(dir.begin(), dir.end(), path.begin(), path.end());
  return end == dir.end();
}

void check_apart(const std::string& out, const fs::path& place, const std::string& source) {
  if (source.empty()) return;
  const fs::path real = fs::canonical(source);
  if (place == real) fail(Kind::usage, "{}: is the source itself; nothing is converted in place", out);
  if (contains(real, place)) fail(Kind::usage, "{}: lies inside the source {}; choose another place", out, source);
  if (contains(place, real)) fail(Kind::usage, "{}: holds the source {}; choose another place", out, source);
}

/// Only a directory in which every file was made by this tool may go.
void check_replaceable(const std::string& out, const fs::path& place, const OutputDir::Made& made) {
  if (fs::is_directory(place) && fs::is_empty(place)) return;
  if (!made) fail(Kind::usage, "{}: exists; choose another place, or replace what mxfp4-pack made with --force", out);
  const std::vector<std::string> names = made(place.string());
  if (names.empty()) fail(Kind::usage, "{}: exists and was not made by mxfp4-pack; choose another place", out);
  const std::set<std::string> ours(names.begin(), names.end());
  for (const auto& entry : fs::recursive_directory_iterator(place))
    if (!entry.is_directory() && !ours.count(entry.path().lexically_relative(place).string()))
      fail(Kind::usage, "{}: {} was not made by mxfp4-pack; move it away first", out,
           printable(entry.path().lexically_relative(place).string()));
}

void sync_dir(const fs::path& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno(dir.string(), "cannot open", errno);
  const int result = ::fsync(fd), error = errno;
  ::close(fd);
  if (result != 0 && error != EINVAL) fail_errno(dir.string(), "cannot sync to disk", error);
}

/// Swaps two directories in one step where the file system can; else moves `old` aside first.
void swap_directories(const std::string& fresh, const std::string& old) {
  if (::syscall(SYS_renameat2, AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) fail_errno(old, "cannot replace", errno);
  const std::string aside = fresh + ".old";
  if (::rename(old.c_str(), aside.c_str()) != 0) fail_errno(old, "cannot move aside", errno);
  if (::rename(fresh.c_str(), old.c_str()) != 0) fail_errno(old, "cannot rename into place", errno);
  if (::rename(aside.c_str(), fresh.c_str()) != 0) fail_errno(aside, "cannot rename", errno);
}

}  // namespace

OutputDir::OutputDir(const std::string& out, const std::string& source, const Made& made) {
  std::error_code ec;
  fs::path place = fs::weakly_canonical(fs::absolute(out), ec);
  if (ec) fail_errno(out, "cannot resolve", ec.value());
  if (!place.has_filename()) place = place.parent_path();
  if (fs::is_symlink(fs::symlink_status(out))) fail(Kind::usage, "{}: is a link; give the place itself", out);
  check_apart(out, place, source);
  if (!fs::is_directory(place.parent_path()))
    fail(Kind::io, "{}: the folder {} does not exist", out, place.parent_path().string());
  if (fs::exists(place)) {
    check_replaceable(out, place, made);
    replace_ = true;
  }
  out_ = place.string();
  partial_ = (place.parent_path() / fmt::format(".{}.mxfp4-pack.partial", place.filename().string())).string();
  fs::remove_all(partial_, ec);
  if (!fs::create_directory(partial_, ec)) fail_errno(partial_, "cannot create", ec.value());
}

OutputDir::~OutputDir() {
  std::error_code ec;
  if (!committed_) fs::remove_all(partial_, ec);
}

std::string OutputDir::path(const std::string& name) const {
  const fs::path p = fs::path(partial_) / name;
  std::error_code ec;
  fs::create_directories(p.parent_path(), ec);
  if (ec) fail_errno(p.parent_path().string(), "cannot create", ec.value());
  return p.string();
}

Fd OutputDir::create(const std::string& name, int64_t bytes) const {
  Fd fd = open_write(path(name), name);
  if (bytes > 0 && ::fallocate(fd.get(), 0, 0, bytes) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) fail_errno(name, "cannot reserve space", errno);
    if (::ftruncate(fd.get(), bytes) != 0) fail_errno(name, "cannot set its size", errno);
  }
  return fd;
}

void OutputDir::check_space(int64_t bytes) const {
  struct statvfs s;
  if (::statvfs(partial_.c_str(), &s) != 0) fail_errno(partial_, "cannot ask for free space", errno);
  const auto free = int64_t(s.f_bavail) * int64_t(s.f_frsize);
  if (free < bytes)
    fail(Kind::io, "{}: {} needed, {} free", fs::path(out_).parent_path().string(), human_bytes(bytes),
         human_bytes(free));
}

void OutputDir::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(partial_))
    if (entry.is_directory()) sync_dir(entry.path());
  sync_dir(partial_);
  if (replace_)
    swap_directories(partial_, out_);
  else if (::syscall(SYS_renameat2, AT_FDCWD, partial_.c_str(), AT_FDCWD, out_.c_str(), RENAME_NOREPLACE) != 0 &&
           ((errno != EINVAL && errno != ENOSYS) || ::rename(partial_.c_str(), out_.c_str()) != 0))
    fail_errno(out_, "cannot rename into place", errno);
  committed_ = true;
  sync_dir(fs::path(out_).parent_path());
  std::error_code ec;
  if (replace_) fs::remove_all(partial_, ec);
}

}  // namespace mxfp4
