#include "src/io/privacy.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "src/base/error.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr mode_t group_bits = 070;
constexpr int group_shift = 3;
constexpr const char* access_list = "system.posix_acl_access";
constexpr const char* inherited_list = "system.posix_acl_default";

bool has_access_list(const fs::path& path) { return ::getxattr(path.c_str(), access_list, nullptr, 0) > 0; }

/// What the files that were looked at permit to all of those who may read any of them.
struct Permitted {
  mode_t denied = 0;
  std::optional<gid_t> group = {};
  bool same_group = true;

  /// read, write: the bits that let others read it, and write it.
  void add(const fs::path& path, mode_t read, mode_t write) {
    struct stat s;
    if (::stat(path.c_str(), &s) != 0) return;
    for (const int who : {0, group_shift}) {
      if (!(s.st_mode >> who & read)) denied |= mode_t(7 << who);
      if (!(s.st_mode >> who & write)) denied |= mode_t(2 << who);
    }
    if (has_access_list(path)) denied |= group_bits;  // then the mode shows the list's mask, not what the group may
    same_group &= group.value_or(s.st_gid) == s.st_gid;
    group = s.st_gid;
  }
  void add_folder(const fs::path& path) { add(path, S_IXOTH, S_IXOTH); }
};

Permitted permitted_by(const std::string& source) {
  Permitted all;
  all.add_folder(source);
  std::error_code ec;
  for (const Entry& entry : entries_below(source, Unreadable::skip)) {
    if (fs::is_regular_file(entry.path, ec)) all.add(entry.path, S_IROTH, S_IWOTH);
    if (fs::is_directory(entry.path, ec)) all.add_folder(entry.path);
    if (entry.is_link()) all.add_folder(fs::canonical(entry.path, ec).parent_path());
  }
  if (!all.group) all.denied |= 077;
  return all;
}

void set_mode(const Fd& fd, mode_t mode) {
  for (const char* list : {access_list, inherited_list}) ::fremovexattr(fd.get(), list);  // mostly there is none
  if (::fchmod(fd.get(), mode) == 0 || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return;
  fail_errno(fd.name(), "cannot set its mode", errno);
}

}  // namespace

Privacy::Privacy() : umask_(process_umask()) {}

Privacy::Privacy(const std::string& source) : umask_(process_umask()), has_source_(true) {
  const Permitted all = permitted_by(source);
  denied_ = all.denied;
  if (all.same_group) group_ = all.group;
}

mode_t Privacy::limit(mode_t mode, gid_t group) const {
  mode &= ~denied_;
  return !has_source_ || group_ == group ? mode : mode & mode_t(~group_bits | (mode & 07) << group_shift);
}

void Privacy::apply(const Fd& made) const { set_mode(made, limit(0666 & ~umask_, made.stat().st_gid)); }

void Privacy::apply(const Folder& made) const {
  const mode_t from_above = made.stat().st_mode & (S_ISGID | S_ISVTX);
  apply(made, from_above | (0777 & ~umask_));
}

void Privacy::apply(const Folder& made, mode_t mode) const {
  const Fd fd = made.readable();
  if (!fd) fail_errno(made.path(), "cannot open", errno);
  set_mode(fd, limit(mode, fd.stat().st_gid));
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
