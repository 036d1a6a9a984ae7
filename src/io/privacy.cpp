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

/// What all files that were looked at deny to group and others: to files, and to folders.
struct Permitted {
  mode_t denied = 0, denied_folder = 0;
  std::optional<gid_t> group = {};
  bool same_group = true;

  void add_file(const fs::path& path) { add(path, S_IROTH); }
  void add_folder(const fs::path& path) {
    struct stat s;
    if (::stat(path.c_str(), &s) == 0) denied_folder |= ~s.st_mode & 077;
    add(path, S_IXOTH);
  }

 private:
  /// read: the bit without which nothing of it can be read.
  void add(const fs::path& path, mode_t read) {
    struct stat s;
    if (::stat(path.c_str(), &s) != 0) return;
    mode_t no = 0;
    for (const int who : {0, group_shift}) {
      if (!(s.st_mode >> who & read)) no |= mode_t(7 << who);
      if (S_ISREG(s.st_mode) && !(s.st_mode >> who & S_IWOTH)) denied |= mode_t(2 << who);
    }
    if (has_access_list(path)) no |= 077;  // it may deny to some users what the mode permits
    denied |= no;
    denied_folder |= no;
    same_group &= group.value_or(s.st_gid) == s.st_gid;
    group = s.st_gid;
  }
};

Permitted permitted_by(const std::string& source) {
  Permitted all;
  all.add_folder(source);
  std::error_code ec;
  for (const Entry& entry : entries_below(source, Unreadable::skip)) {
    if (fs::is_regular_file(entry.path, ec)) all.add_file(entry.path);
    if (fs::is_directory(entry.path, ec)) all.add_folder(entry.path);
    if (entry.is_link()) all.add_folder(fs::canonical(entry.path, ec).parent_path());
  }
  if (!all.group) all.denied = all.denied_folder = 077;
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
  denied_folder_ = all.denied_folder;
  if (all.same_group) group_ = all.group;
}

mode_t Privacy::limit(mode_t mode, gid_t group, bool is_folder) const {
  mode &= ~(is_folder ? denied_folder_ : denied_);
  if (!has_source_ || group_ == group) return mode;
  const mode_t both = mode & mode >> group_shift & 07;  // the groups are others to each other
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

bool has_access_list(const Folder& folder) {
  const Fd fd = folder.readable();
  return fd && ::fgetxattr(fd.get(), access_list, nullptr, 0) > 0;
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
