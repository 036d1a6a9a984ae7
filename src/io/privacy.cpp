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

constexpr mode_t group_bits = 070;
constexpr int group_shift = 3;
constexpr const char* access_list = "system.posix_acl_access";
constexpr const char* inherited_list = "system.posix_acl_default";

void set_mode(const Fd& fd, mode_t mode) {
  for (const char* list : {access_list, inherited_list}) ::fremovexattr(fd.get(), list);  // usually there is none
  if (::fchmod(fd.get(), mode) == 0 || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return;
  fail_errno(fd.name(), "cannot set its mode", errno);
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
  mode &= ~(is_folder ? denied_folder_ : denied_);
  if (!has_source_ || group_ == group) return mode;
  const mode_t both = mode & mode >> group_shift & 07;  // members of one group are others to the other group
  return (mode & ~mode_t(077)) | both | both << group_shift;
}

void Privacy::apply(const Fd& made) const { set_mode(made, limit(0666 & ~umask_, made.stat().st_gid, false)); }

void Privacy::apply(const Folder& made) const {
  const mode_t from_above = made.stat().st_mode & (S_ISGID | S_ISVTX);
  apply(made, from_above | (0777 & ~umask_));
}

void Privacy::apply(const Folder& made, mode_t mode) const {
  const Fd fd = made.readable();
  if (!fd) fail_errno(made.path(), "cannot open", errno);
  set_mode(fd, limit(mode, fd.stat().st_gid, true));
}

void Privacy::keep(const Fd& made, mode_t mode) { set_mode(made, mode & 0777); }

void Privacy::keep(const Folder& made, mode_t mode) {
  const Fd fd = made.readable();
  if (!fd) fail_errno(made.path(), "cannot open", errno);
  set_mode(fd, mode & 07777);
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
