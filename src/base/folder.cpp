#include "src/base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <new>

#include "src/base/error.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int hold = O_PATH | O_DIRECTORY | O_CLOEXEC;

int error_of(int result) { return result == 0 ? 0 : errno; }

/// Whether the error says that nothing has the name: a step before it is missing, is no folder, or is a link.
bool is_absence(int error) { return error == ENOENT || error == ENOTDIR || error == ELOOP; }

int try_to_hold(int folder, const char* name, int flags = 0) {
  int fd;
  do fd = ::openat(folder, name, hold | flags);
  while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

/// The folder of the last step of a relative name. It is held as long as this object and the name live. A name of one
/// step needs no memory, as required after the rename that publishes an output.
class FolderOfName {
 public:
  FolderOfName(const Folder& folder, const std::string& name) : folder_(folder.fd_.get()) {
    size_t begin = 0;
    for (size_t end; (end = name.find('/', begin)) != name.npos && folder_ >= 0; begin = end + 1) {
      const std::string step = name.substr(begin, end - begin);
      if (step.empty() || step == "." || step == "..") fail(ErrorKind::input, "{}: not a plain relative name", name);
      held_ = Fd(try_to_hold(folder_, step.c_str(), O_NOFOLLOW), folder.path(name.substr(0, end)));
      folder_ = held_.get();
      error_ = errno;
    }
    last_ = name.c_str() + begin;
    const std::string_view last = last_;
    if (last.empty() || last == "." || last == "..") fail(ErrorKind::input, "{}: not a plain relative name", name);
  }
  /// Calls call(FOLDER, NAME), one of the *at functions. Returns -1 and sets errno if the folder does not exist.
  template <class Call>
  int operator()(const Call& call) const {
    errno = error_;
    return folder_ < 0 ? -1 : call(folder_, last_);
  }
  /// Throws Error{io} if the folder does not exist.
  At at(const std::string& shown) const {
    if (folder_ < 0) fail_errno(shown, "cannot open", error_);
    return {folder_, last_};
  }

 private:
  Fd held_;
  int folder_, error_ = 0;
  const char* last_;
};

Folder Folder::try_open(const std::string& path) { return Folder(Fd(try_to_hold(AT_FDCWD, path.c_str()), path)); }

Folder Folder::open(const std::string& path) {
  Folder folder = try_open(path);
  if (!folder) fail_errno(path, "cannot open", errno);
  return folder;
}

Folder Folder::again(std::string path) const {
  const int fd = ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail_errno(path, "cannot open", errno);
  return Folder(Fd(fd, std::move(path)));
}

std::string Folder::lasting_path() const {
  static const bool has_proc = ::access("/proc/self/fd", X_OK) == 0;
  return has_proc ? proc_path() : path();
}

bool Folder::is_own() const { return stat().st_uid == ::geteuid(); }

bool Folder::is_at(const Folder& above, const std::string& name) const {
  const auto there = above.look(name);
  return there && identity_of(*there) == identity_of(stat());
}

std::optional<struct stat> Folder::look(const std::string& name) const {
  struct stat s;
  const FolderOfName in(*this, name);
  if (in([&](int dir, const char* last) { return ::fstatat(dir, last, &s, AT_SYMLINK_NOFOLLOW); }) == 0) return s;
  if (!is_absence(errno)) fail_errno(path(name), "cannot stat", errno);
  return {};
}

bool Folder::has_file(const std::string& name) const {
  const auto s = look(name);
  return s && S_ISREG(s->st_mode);
}

Folder Folder::find(const std::string& name) const {
  const FolderOfName in(*this, name);
  const int fd = in([&](int dir, const char* last) { return try_to_hold(dir, last, O_NOFOLLOW); });
  if (fd < 0 && !is_absence(errno)) fail_errno(path(name), "cannot open", errno);
  return Folder(Fd(fd, path(name)));
}

Folder Folder::parent() const { return Folder(Fd(try_to_hold(fd_.get(), ".."), path(".."))); }

Folder Folder::make(const std::string& name) const {
  const FolderOfName in(*this, name);
  if (in([](int dir, const char* last) { return ::mkdirat(dir, last, 0700); }) != 0)
    fail_errno(path(name), "cannot create", errno);
  Folder made = find(name);
  // Another user who may write here could have put another folder of this user in its place, in which others may write.
  if (!made || !made.is_own() || !names_in_folder(made).empty())
    fail(ErrorKind::io, "{}: another user has changed it while it was made", path(name));
  made.make_private();
  return made;
}

int Folder::try_make(const std::string& name) const {
  const FolderOfName in(*this, name);
  const int error = error_of(in([](int dir, const char* last) { return ::mkdirat(dir, last, 0700); }));
  return error == EEXIST ? 0 : error;
}

Folder Folder::make_or_find(const std::string& name) const {
  if (const int error = try_make(name)) fail_errno(path(name), "cannot create", error);
  return find(name);
}

Fd Folder::open(const std::string& name, int flags, mode_t mode) const {
  const FolderOfName in(*this, name);
  int fd;
  do fd = in([&](int dir, const char* last) { return ::openat(dir, last, flags | O_NOFOLLOW | O_CLOEXEC, mode); });
  while (fd < 0 && errno == EINTR);
  return {fd, path(name)};
}

int Folder::unlink(const std::string& name) const {
  const FolderOfName in(*this, name);
  return error_of(in([](int dir, const char* last) { return ::unlinkat(dir, last, 0); }));
}

int Folder::rmdir(const std::string& name) const {
  const FolderOfName in(*this, name);
  return error_of(in([](int dir, const char* last) { return ::unlinkat(dir, last, AT_REMOVEDIR); }));
}

int Folder::rename(const std::string& name, const Folder& to, const std::string& new_name, unsigned flags) const {
  const FolderOfName in(*this, name), there(to, new_name);
  return error_of(in([&](int dir, const char* last) {
    return there([&](int to_dir, const char* to_last) {
      return flags ? ::renameat2(dir, last, to_dir, to_last, flags) : ::renameat(dir, last, to_dir, to_last);
    });
  }));
}

int Folder::link(const std::string& name, const Folder& to, const std::string& new_name) const {
  const FolderOfName in(*this, name), there(to, new_name);
  return error_of(in([&](int dir, const char* last) {
    return there([&](int to_dir, const char* to_last) { return ::linkat(dir, last, to_dir, to_last, 0); });
  }));
}

int Folder::link_file(const Fd& file, const std::string& new_name) const {
  const std::string path = file.proc_path();
  const FolderOfName in(*this, new_name);
  return error_of(
      in([&](int dir, const char* last) { return ::linkat(AT_FDCWD, path.c_str(), dir, last, AT_SYMLINK_FOLLOW); }));
}

int Folder::symlink(const std::string& target, const std::string& name) const {
  const FolderOfName in(*this, name);
  return error_of(in([&](int dir, const char* last) { return ::symlinkat(target.c_str(), dir, last); }));
}

std::optional<std::string> Folder::link_target(const std::string& name) const {
  char target[PATH_MAX];
  const FolderOfName in(*this, name);
  const int bytes = in([&](int dir, const char* last) { return int(::readlinkat(dir, last, target, sizeof target)); });
  if (bytes < 0) return {};
  return std::string(target, size_t(bytes));
}

int Folder::touch(const std::string& name) const {
  const FolderOfName in(*this, name);
  return error_of(in([](int dir, const char* last) { return ::utimensat(dir, last, nullptr, AT_SYMLINK_NOFOLLOW); }));
}

int Folder::touch() const { return error_of(::utimensat(fd_.get(), ".", nullptr, 0)); }

Fd Folder::readable() const {
  int fd;
  do fd = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  return {fd, path()};
}

void Folder::make_private() const {
  if ((stat().st_mode & 077) != 0) ::fchmod(readable().get(), 0700);  // fails on file systems without modes
}

bool Folder::is_private() const {
  static const std::set<unsigned long> without_modes = {
      MSDOS_SUPER_MAGIC, 0x2011bab0 /* exfat */, 0x7366746e /* ntfs */,
      SMB_SUPER_MAGIC,   0xff534d42 /* cifs */,  0xfe534d42 /* smb2 */,
      V9FS_MAGIC,        FUSE_SUPER_MAGIC};
  const mode_t mode = stat().st_mode;
  struct statfs s;
  const bool has_modes = ::fstatfs(fd(), &s) != 0 || !without_modes.contains(static_cast<unsigned long>(s.f_type));
  return is_own() && (mode & (has_modes ? 077 : 022)) == 0;
}

mode_t Folder::make_writable() const {
  const mode_t mode = stat().st_mode & 07777;
  set_mode(mode | S_IRWXU);
  return mode;
}

void Folder::set_mode(mode_t mode) const {
  if ((stat().st_mode & 07777) == mode) return;
  if (const Fd fd = readable())
    ::fchmod(fd.get(), mode);
  else
    ::chmod(lasting_path().c_str(), mode);
}

void sync_names(const Fd& folder) {
  if (!folder) fail_errno(folder.name(), "cannot open", errno);
  if (::fsync(folder.get()) != 0 && errno != EINVAL) fail_errno(folder.name(), "cannot sync to disk", errno);
}

std::set<Identity> folders_above(const Folder& folder) {
  std::set<Identity> all;
  for (Folder at = folder.again(); at && all.insert(identity_of(at.stat())).second;) at = at.parent();
  return all;
}

Fd open_read(const Folder& folder, const std::string& name) {
  return open_read(FolderOfName(folder, name).at(folder.path(name)), folder.path(name), O_NOFOLLOW);
}

Fd open_write(const Folder& folder, const std::string& name) {
  return open_write(FolderOfName(folder, name).at(folder.path(name)), name, 0600);
}

Fd open_own(const Folder& folder, const std::string& name) {
  return open_own(FolderOfName(folder, name).at(folder.path(name)), name, 0600);
}

Fd open_text(const Folder& folder, const std::string& name, int64_t limit) {
  return limited(open_read(folder, name), limit);
}

std::string read_text(const Folder& folder, const std::string& name, int64_t limit) {
  return read_text(open_text(folder, name, limit));
}

void write_text(const Folder& folder, const std::string& name, std::string_view text) {
  write_text(open_write(folder, name), text);
}

namespace {

void fail_to(const char* action, const fs::path& path, int error) {
  if (error == ENOMEM) throw std::bad_alloc();
  throw fs::filesystem_error(action, path, std::error_code(error, std::generic_category()));
}

struct Close {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

/// errno of the first call that failed; 0 if none did.
int read_names(const Folder& folder, std::vector<std::string>& names) {
  const Fd fd = folder.readable();
  if (!fd) return errno;
  const int own = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);  // closedir() closes it
  const std::unique_ptr<DIR, Close> open(own < 0 ? nullptr : ::fdopendir(own));
  if (!open) {
    const int error = errno;
    if (own >= 0) ::close(own);
    return error;
  }
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (!entry) return errno;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

/// Holds nothing if the folder is to be left out.
Folder hold_to_list(const fs::path& path, Unreadable unreadable) {
  Folder folder = Folder::try_open(path.string());
  if (!folder && (errno == ENOMEM || unreadable == Unreadable::fail)) fail_to("cannot read", path, errno);
  return folder;
}

void walk_below(const Folder& folder, const std::string& prefix, const Visit& visit, Unreadable unreadable) {
  for (const std::string& name : names_in_folder(folder, unreadable)) {
    Entry entry{prefix + name, folder.path(name), {}};
    try {
      const auto state = folder.look(name);
      if (!state) continue;
      entry.state = *state;
    } catch (const Error&) {
      if (unreadable == Unreadable::fail) throw;
      continue;
    }
    if (!visit(entry) || !entry.is_folder()) continue;
    const Folder below = folder.find(name);
    if (below)
      walk_below(below, entry.name + "/", visit, unreadable);
    else if (unreadable == Unreadable::fail)
      fail_to("cannot read", entry.path, ENOENT);
  }
}

std::vector<Entry> listed(const auto& folder, Unreadable unreadable) {
  std::vector<Entry> entries;
  walk(
      folder, [&](const Entry& entry) { return entries.push_back(entry), true; }, unreadable);
  return entries;
}

}  // namespace

std::vector<std::string> names_in_folder(const Folder& folder, Unreadable unreadable) {
  std::vector<std::string> names;
  const int error = read_names(folder, names);
  if (error == ENOMEM || (error != 0 && unreadable == Unreadable::fail)) fail_to("cannot read", folder.path(), error);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_in_folder(const fs::path& path, Unreadable unreadable) {
  const Folder folder = hold_to_list(path, unreadable);
  return folder ? names_in_folder(folder, unreadable) : std::vector<std::string>();
}

void walk(const Folder& folder, const Visit& visit, Unreadable unreadable) {
  walk_below(folder, "", visit, unreadable);
}

void walk(const fs::path& path, const Visit& visit, Unreadable unreadable) {
  if (const Folder folder = hold_to_list(path, unreadable)) walk(folder, visit, unreadable);
}

std::vector<Entry> entries_below(const Folder& folder, Unreadable unreadable) { return listed(folder, unreadable); }

std::vector<Entry> entries_below(const fs::path& folder, Unreadable unreadable) { return listed(folder, unreadable); }

std::vector<std::string> files_below(const Folder& folder) {
  std::vector<std::string> names;
  for (const Entry& entry : entries_below(folder))
    if (!entry.is_folder()) names.push_back(entry.name);
  return names;
}

void remove_tree(const Folder& folder, const std::string& name) {
  const auto remove = [](const Folder& in, const std::string& one, bool is_folder) {
    const int error = is_folder ? in.rmdir(one) : in.unlink(one);
    if (error != 0 && error != ENOENT) fail_to("cannot remove", in.path(one), error);
  };
  const Folder tree = folder.find(name);
  if (tree) {
    const std::vector<Entry> entries = entries_below(tree);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)  // contents before their folder
      remove(tree, entry->name, entry->is_folder());
  }
  remove(folder, name, bool(tree));
}

}  // namespace mxfp4
