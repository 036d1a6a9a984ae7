#include "src/io/privacy.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "src/base/error.h"
#include "src/io/permitted.h"

namespace mxfp4 {

namespace {

constexpr int group_shift = 3;
constexpr const char* access_list = "system.posix_acl_access";
constexpr const char* inherited_list = "system.posix_acl_default";

void set_mode(const Fd& fd, mode_t mode) {
  for (const char* list : {access_list, inherited_list}) ::fremovexattr(fd.get(), list);  // usually there is none
  if (::fchmod(fd.get(), mode) == 0 || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return;
  fail_errno(fd.name(), "cannot set its mode", errno);
}

Fd to_change(const Folder& folder) {
  Fd fd = folder.readable();
  if (!fd) fail_errno(folder.path(), "cannot open", errno);
  return fd;
}

/// The mode of `old` that a file or folder can keep with the owner and group that it has.
mode_t kept_mode(const Fd& made, const struct stat& old, bool has_list) {
  const struct stat s = made.stat();
  mode_t mode = old.st_mode & 07777;
  if (has_list || s.st_uid != old.st_uid) mode &= ~mode_t(077);
  if (s.st_gid != old.st_gid) mode &= ~(mode_t(S_ISGID) | S_IRWXG);
  return mode;
}

/// As far as this user may. owner: -1 leaves it.
void give(const Fd& made, uid_t owner, gid_t group) {
  const struct stat s = made.stat();
  if (s.st_gid == group && (owner == uid_t(-1) || s.st_uid == owner)) return;
  if (::fchown(made.get(), owner, group) != 0 && ::fchown(made.get(), uid_t(-1), group) != 0)
    errno = 0;  // kept_mode() takes that into account
}

}  // namespace

Privacy::Privacy() : umask_(process_umask()) {}

Privacy::Privacy(const Permitted& source)
    : umask_(process_umask()),
      denied_(source.denied(false)),
      denied_folder_(source.denied(true)),
      has_source_(true),
      group_(source.group()) {}

mode_t Privacy::limit(mode_t mode, gid_t group, bool is_folder) const {
  mode_t permitted = 077 & ~(is_folder ? denied_folder_ : denied_);
  if (has_source_ && group_ != group) {  // members of one group are others to the other group
    const mode_t both = permitted & permitted >> group_shift;
    permitted = both | both << group_shift;
  }
  return mode & (~mode_t(077) | permitted);
}

void Privacy::apply(const Fd& made) const { set_mode(made, limit(0666 & ~umask_, made.stat().st_gid, false)); }

void Privacy::apply(const Folder& made) const {
  const mode_t from_above = made.stat().st_mode & (S_ISGID | S_ISVTX);
  const Fd fd = to_change(made);
  set_mode(fd, limit(from_above | (0777 & ~umask_), fd.stat().st_gid, true));
}

void Privacy::apply(const Folder& made, const Folder& old) const {
  if (made.stat().st_uid != old.stat().st_uid) return apply(made);
  const Fd fd = to_change(made);
  give(fd, uid_t(-1), old.stat().st_gid);
  const mode_t mode = kept_mode(fd, old.stat(), has_access_list(old));
  set_mode(fd, limit(mode, fd.stat().st_gid, true));
}

void Privacy::keep(const Fd& made, const Fd& old) {
  give(made, old.stat().st_uid, old.stat().st_gid);
  set_mode(made, kept_mode(made, old.stat(), has_access_list(old)) & 0777);
}

void Privacy::keep(const Folder& made, const Folder& old) {
  const Fd fd = to_change(made);
  give(fd, old.stat().st_uid, old.stat().st_gid);
  set_mode(fd, kept_mode(fd, old.stat(), has_access_list(old)));
}

mode_t process_umask() {
  static constexpr const char* field = "\nUmask:";
  const Fd status(::open("/proc/self/status", O_RDONLY | O_CLOEXEC), "/proc/self/status");
  char text[4096] = {};
  if (!status || ::read(status.get(), text, sizeof text - 1) <= 0) return 077;
  const std::string_view all = text;
  const size_t at = all.find(field);
  return at == all.npos ? 077 : mode_t(std::strtoul(text + at + std::string_view(field).size(), nullptr, 8));
}

}  // namespace mxfp4
