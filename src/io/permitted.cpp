#include "src/io/permitted.h"

#include <fcntl.h>
#include <sys/xattr.h>

#include <cerrno>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

constexpr const char* list_name = "system.posix_acl_access";

}  // namespace

bool has_access_list(const Fd& file) {
  const ssize_t list = ::fgetxattr(file.get(), list_name, nullptr, 0);
  if (list >= 0 || errno != EBADF) return list > 0;
  return ::getxattr(file.proc_path().c_str(), list_name, nullptr, 0) > 0;  // opened with O_PATH
}

bool has_access_list(const Folder& folder) {
  if (const Fd fd = folder.readable()) return has_access_list(fd);
  return ::getxattr(folder.lasting_path().c_str(), list_name, nullptr, 0) > 0;  // needs no permission to read it
}

void Permitted::add(const Fd& file) { add(file.stat(), S_IROTH, has_access_list(file)); }

void Permitted::add(const Folder& folder) {
  const struct stat s = folder.stat();
  denied_folder_ |= ~s.st_mode & 077;
  add(s, S_IXOTH, has_access_list(folder));
}

/// read: the permission bit without which nothing of it can be read.
void Permitted::add(const struct stat& s, mode_t read, bool has_list) {
  mode_t no = 0;
  for (const int who : {0, 3}) {
    if (!(s.st_mode >> who & read)) no |= mode_t(7 << who);
    if (S_ISREG(s.st_mode) && !(s.st_mode >> who & S_IWOTH)) denied_ |= mode_t(2 << who);
  }
  if (has_list) no |= 077;  // the list may deny some users what the mode permits
  denied_ |= no;
  denied_folder_ |= no;
  same_group_ &= group_.value_or(s.st_gid) == s.st_gid;
  group_ = s.st_gid;
}

Permitted permitted_in(const Folder& folder) {
  Permitted all;
  all.add(folder);
  const auto visit = [&](const Entry& entry) {
    if (entry.is_folder()) {
      if (const Folder below = folder.find(entry.name)) all.add(below);
    } else if (const int fd = ::openat(folder.fd(), entry.name.c_str(), O_PATH | O_CLOEXEC); fd >= 0) {
      const Fd file(fd, entry.name);
      if (S_ISREG(file.stat().st_mode)) all.add(file);
    }
    return true;
  };
  walk(folder, visit, Unreadable::skip);
  return all;
}

}  // namespace mxfp4
