#include "src/io/place.h"

#include <mntent.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <new>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/io/leftover.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

void check_apart(const std::string& out, const fs::path& place, const std::string& source) {
  if (source.empty()) return;
  std::error_code ec;
  const fs::path real = fs::canonical(source, ec);
  if (ec == std::errc::not_enough_memory) throw std::bad_alloc();
  if (ec) return;  // whoever opens it says what is wrong
  if (place == real) fail(ErrorKind::usage, "{}: is the source {} itself; choose another place", out, source);
  if (is_below(place, real)) fail(ErrorKind::usage, "{}: lies inside the source {}; choose another place", out, source);
  if (is_below(real, place)) fail(ErrorKind::usage, "{}: holds the source {}; choose another place", out, source);
}

/// Where the system does not list its mounts, the rename at the end fails.
void check_not_mounted(const std::string& out, const std::string& place) {
  const std::string mounted = mounted_in(place);
  if (mounted.empty()) return;
  if (mounted == place)
    fail(ErrorKind::usage, "{}: is a mount point, which cannot appear whole or not at all; choose a folder in it", out);
  fail(ErrorKind::usage, "{}: {} is mounted in it; unmount that first, or choose another place", out, mounted);
}

}  // namespace

std::string mounted_in(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> mounts(::setmntent("/proc/self/mounts", "re"), ::endmntent);
  char text[8192];
  for (mntent entry; mounts && ::getmntent_r(mounts.get(), &entry, text, sizeof text);)
    if (is_below(entry.mnt_dir, path)) return entry.mnt_dir;
  return {};
}

void refuse_link(const std::string& out) {
  const size_t end = out.find_last_not_of('/') + 1;  // of "out/" too
  if (fs::is_symlink(fs::symlink_status(out.substr(0, end))))
    fail(ErrorKind::usage, "{}: is a link; give the place itself", out);
}

std::string place_of(const std::string& out, const std::string& source) {
  std::error_code ec;
  fs::path place = fs::weakly_canonical(fs::absolute(out), ec);
  if (ec) fail_errno(out, "cannot resolve", ec.value());
  if (!place.has_filename()) place = place.parent_path();
  refuse_link(out);
  if (const std::string of = place_behind(place.parent_path().string(), place.filename().string()); !of.empty())
    fail(ErrorKind::usage, "{}: is a name that a run to {} has for itself; choose another", out, of);
  check_apart(out, place, source);
  if (place == fs::current_path(ec))
    fail(ErrorKind::usage,
         "{}: is the folder that this was started in, which another would replace; start it elsewhere", out);
  if (!fs::is_directory(place.parent_path()))
    fail(ErrorKind::io, "{}: the folder {} does not exist; make it first", out, place.parent_path().string());
  check_not_mounted(out, place.string());
  return place.string();
}

void check_space(const std::string& folder, int64_t bytes, const std::vector<std::string>& spare) {
  struct statvfs space;
  if (::statvfs(folder.c_str(), &space) != 0) fail_errno(folder, "cannot ask for free space", errno);
  const auto free = int64_t(space.f_bavail) * int64_t(space.f_frsize);
  int64_t needed = bytes;
  for (const std::string& dir : spare)
    for (const Entry& entry : entries_below(dir, Unreadable::skip))
      if (struct stat s; ::lstat(entry.path.c_str(), &s) == 0 && s.st_nlink == 1) needed -= int64_t(s.st_blocks) * 512;
  if (free < needed) fail(ErrorKind::io, "{}: {} needed, {} free", folder, human_bytes(needed), human_bytes(free));
}

mode_t umask_like(const std::string& dir) {
  mode_t denied = 0;
  struct stat s;
  const auto add = [&](const fs::path& path, mode_t read, mode_t write) {
    if (::stat(path.c_str(), &s) != 0) return;
    for (const int who : {0, 3}) {  // others, group
      if (!(s.st_mode >> who & read)) denied |= mode_t(7 << who);
      if (!(s.st_mode >> who & write)) denied |= mode_t(2 << who);
    }
  };
  add(dir, S_IXOTH, S_IXOTH);
  std::error_code ec;
  for (const Entry& entry : entries_below(dir, Unreadable::skip)) {
    if (fs::is_regular_file(entry.path, ec)) add(entry.path, S_IROTH, S_IWOTH);
    if (fs::is_directory(entry.path, ec)) add(entry.path, S_IXOTH, S_IXOTH);
    if (entry.is_link()) add(fs::canonical(entry.path, ec).parent_path(), S_IXOTH, S_IXOTH);
  }
  return denied;
}

}  // namespace mxfp4
