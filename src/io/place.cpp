#include "src/io/place.h"

#include <fcntl.h>
#include <mntent.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/new_file.h"
#include "src/io/stage.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// A folder and the folders in it, at most 10,000: no checkpoint has that many.
std::set<Identity> folders_in(const Folder& folder) {
  constexpr size_t most = 10'000;
  std::set<Identity> all = {identity_of(folder.stat())};
  const auto visit = [&](const Entry& entry) {
    if (entry.is_folder()) all.insert(identity_of(entry.state));
    return all.size() < most;
  };
  walk(folder, visit, Unreadable::skip);
  return all;
}

bool share_any(const std::set<Identity>& a, const std::set<Identity>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Identity& folder) { return b.contains(folder); });
}

void check_length(const std::string& out, const std::string& name) {
  static constexpr size_t most = NAME_MAX;
  const size_t beside = stage_beside(name).size();
  if (beside > most)
    fail(ErrorKind::usage, "{}: a name of {} bytes, at most {} expected, since the staging directory's name is longer",
         out, name.size(), most - (beside - name.size()));
}

void refuse_link_at(const std::string& out, const Folder& above, const std::string& name) {
  if (name.empty()) fail(ErrorKind::usage, "{}: is the root of the file system; choose a folder in it", out);
  if (const auto s = above.look(name); s && S_ISLNK(s->st_mode))
    fail(ErrorKind::usage, "{}: is a link; use its target instead", out);
}

/// The first step of a path that leads nowhere: "nope" of "nope/../out". Else the folder that the last step is in.
fs::path missing_above(const std::string& out) {
  std::error_code ec;
  fs::path at;
  for (const fs::path& step : fs::absolute(out)) {
    if ((step == "." || step == "..") && !fs::is_directory(at, ec)) return at.lexically_normal();
    at /= step;
  }
  return (fs::absolute(out) / "..").lexically_normal();
}

std::string without_slash(const std::string& path) {
  return path.size() > 1 && path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
}

}  // namespace

std::string mounted_in(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> mounts(::setmntent("/proc/self/mounts", "re"), ::endmntent);
  char text[8192];
  for (mntent entry; mounts && ::getmntent_r(mounts.get(), &entry, text, sizeof text);)
    if (is_below(entry.mnt_dir, path)) return entry.mnt_dir;
  if (mounts && std::ferror(mounts.get())) fail_errno("/proc/self/mounts", "cannot read", errno);
  return {};
}

namespace {

void refuse_address(const std::string& out) {
  if (out.find("://") != out.npos)
    fail(ErrorKind::usage, "{}: OUT must be a local directory; upload it afterwards, see mxfp4-pack-sources(7)", out);
}

}  // namespace

void refuse_link(const std::string& out) {
  refuse_address(out);
  if (const LastStep step = last_step(out); step.above) refuse_link_at(out, step.above, step.name);
}

Place place_of(const std::string& out) {
  refuse_address(out);
  LastStep step = last_step(out);
  const int error = errno;
  if (!step.above) {
    const std::string above = without_slash(missing_above(out).string());
    std::error_code ec;
    if (error == ENOTDIR && fs::exists(above, ec)) fail(ErrorKind::usage, "{}: {} is not a folder", out, above);
    if (error == ENOENT || error == ENOTDIR)
      fail(ErrorKind::io, "{}: the folder {} does not exist; make it first", out, above);
    fail_errno(above, "cannot open", error);
  }
  Place place{std::move(step.above), std::move(step.name)};
  refuse_link_at(out, place.above, place.name);
  if (const auto s = place.above.look(place.name); s && !S_ISDIR(s->st_mode))
    fail(ErrorKind::usage, "{}: is a file, not a folder; choose another place", out);
  if (const std::string of = name_behind(place.name); !of.empty())
    fail(ErrorKind::usage, "{}: is the name of the staging directory of {}; choose another name", out,
         place.above.path(of));
  check_length(out, place.name);
  const Folder here = Folder::try_open(".");
  if (here && here.is_at(place.above, place.name))
    fail(ErrorKind::usage, "{}: is the current directory, which the output would replace; start in another directory",
         out);
  return place;
}

/// Compares folders by their identity, since a bind mount gives a folder a second path.
void check_apart(const std::string& out, const Place& place, const std::string& source) {
  const Folder from = Folder::try_open(source);
  if (!from) return;  // the code that opens it reports the error
  const Folder there = place.folder();
  if (there && identity_of(there.stat()) == identity_of(from.stat()))
    fail(ErrorKind::usage, "{}: is the source {} itself; choose another place", out, source);
  if (share_any(folders_above(place.above), folders_in(from)))
    fail(ErrorKind::usage, "{}: lies inside the source {}; choose another place", out, source);
  if (there && folders_above(from).contains(identity_of(there.stat())))
    fail(ErrorKind::usage, "{}: holds the source {}; choose another place", out, source);
}

Place place_of(const std::string& out, const std::string& source) {
  Place place = place_of(out);
  check_apart(out, place, source);
  return place;
}

void check_not_mounted(const std::string& out, const Place& place) {
  const std::string mounted = mounted_in(place.path());
  if (mounted.empty()) return;
  if (mounted == place.path())
    fail(ErrorKind::usage, "{}: is a mount point, which no rename can replace; choose a folder in it", out);
  fail(ErrorKind::usage, "{}: {} is mounted in it; unmount that first, or choose another place", out, mounted);
}

bool can_replace(const Place& place) {
  struct statvfs s;
  const bool is_read_only = ::fstatvfs(place.above.fd(), &s) == 0 && (s.f_flag & ST_RDONLY);
  return !is_read_only && mounted_in(place.path()) != place.path();
}

void check_space(const Folder& folder, int64_t bytes, const std::vector<std::string>& spare) {
  struct statvfs space;
  if (::fstatvfs(folder.fd(), &space) != 0) fail_errno(folder.path(), "cannot ask for free space", errno);
  const auto free = int64_t(space.f_bavail) * int64_t(space.f_frsize);
  int64_t needed = bytes;
  for (const std::string& name : spare)
    if (const Folder dir = folder.find(name))
      for (const Entry& entry : entries_below(dir, Unreadable::skip))
        if (entry.state.st_nlink == 1) needed -= int64_t(entry.state.st_blocks) * 512;
  if (free < needed)
    fail(ErrorKind::io, "{}: {} needed, {} free", folder.path(), human_bytes(needed), human_bytes(free));
}

}  // namespace mxfp4
