#include "src/io/replaced.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/log.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// Files may be removed from it.
void make_writable(const fs::path& folder) {
  std::error_code ec;
  fs::permissions(folder, fs::perms::owner_all, fs::perm_options::add, ec);
}

void make_folders_writable(const std::string& dir) {
  make_writable(dir);
  walk(dir, [](const Entry& entry) {
    if (entry.is_folder()) make_writable(entry.path);  // before it is entered
    return true;
  });
}

bool have_same_bytes(const fs::path& a, const fs::path& b) {
  if (fs::is_symlink(a) || fs::is_symlink(b))
    return fs::is_symlink(a) && fs::is_symlink(b) && fs::read_symlink(a) == fs::read_symlink(b);
  if (!fs::is_regular_file(a) || !fs::is_regular_file(b) || fs::file_size(a) != fs::file_size(b)) return false;
  std::ifstream left(a, std::ios::binary), right(b, std::ios::binary);
  using Bytes = std::istreambuf_iterator<char>;
  return std::equal(Bytes(left), Bytes(), Bytes(right), Bytes());
}

bool is_there_already(const fs::path& from, const fs::path& to) {
  struct stat a, b;
  if (::lstat(from.c_str(), &a) != 0 || ::lstat(to.c_str(), &b) != 0) return false;
  return (a.st_dev == b.st_dev && a.st_ino == b.st_ino) || have_same_bytes(from, to);
}

/// NFS's names, and those of file systems made with libfuse.
bool is_removed_but_open(const Entry& entry) {
  const std::string name = entry.path.filename().string();
  return name.starts_with(".nfs0") || name.starts_with(".fuse_hidden0");
}

/// False where there is something at `to`.
bool move_to_free_name(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno != EINVAL && errno != ENOSYS) fail_errno(from.string(), "cannot move aside", errno);
  if (fs::exists(fs::symlink_status(to))) return false;
  if (::rename(from.c_str(), to.c_str()) != 0) fail_errno(from.string(), "cannot move aside", errno);
  return true;
}

void move_stranger(const fs::path& from, const fs::path& to) {
  if (is_there_already(from, to)) {
    fs::remove(from);
    return;
  }
  fs::create_directories(to.parent_path());
  const std::string target = move_to_free_name(from, to) ? to.string() : move_to_kept(from, to);
  note(fmt::format("{}: came while this run was writing, and is kept", target));
}

/// An empty folder that somebody made is made at `to`, too; one with files is where these are moved.
void keep_if_strange(const Entry& folder, const fs::path& to, bool own) {
  std::error_code ec;  // of a file that is there
  if (!own && is_empty_folder(folder.path) && fs::create_directories(to, ec))
    note(fmt::format("{}: an empty folder that was in what is replaced, kept", to.string()));
}

/// Removes a directory of folders and, at the end, of the file `last`. False where there is another file.
bool remove_folders(const std::string& dir, const std::string& last) {
  const auto entries = entries_below(dir);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {  // what is inside comes before
    if (entry->name == last || ::rmdir(entry->path.c_str()) == 0 || errno == ENOENT) continue;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) return false;
    fail_errno(entry->path.string(), "cannot remove", errno);
  }
  if (!last.empty()) fs::remove(fs::path(dir) / last);
  if (::rmdir(dir.c_str()) == 0) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) fail_errno(dir, "cannot remove", errno);
  return false;
}

}  // namespace

Snapshot snapshot_of(const std::string& dir) {
  Snapshot files;
  for (const Entry& entry : entries_below(dir)) {
    struct stat s;
    if (!entry.is_folder() && ::lstat(entry.path.c_str(), &s) == 0) files[entry.name] = state_of(s);
  }
  return files;
}

std::set<std::string> folders_of(const std::set<std::string>& names) {
  std::set<std::string> folders;
  for (const std::string& name : names)
    for (fs::path p = fs::path(name).parent_path(); !p.empty(); p = p.parent_path()) folders.insert(p.string());
  return folders;
}

std::string foreign_in(const std::string& dir, const std::set<std::string>& names) {
  const std::set<std::string> folders = folders_of(names);
  for (const Entry& entry : entries_below(dir)) {
    if (!(entry.is_folder() ? folders : names).count(entry.name)) return entry.name;
  }
  return {};
}

bool is_taken(const std::string& path) {
  return fs::exists(path) && !(fs::is_directory(path) && is_empty_folder(path));
}

void check_replaceable(const std::string& out, const std::string& dir, const ListOwn& made) {
  const std::vector<std::string> names = made(dir);
  if (names.empty())
    fail(ErrorKind::usage, "{}: exists, and nothing in it says that this command made it; choose another place", out);
  const std::string foreign = foreign_in(dir, {names.begin(), names.end()});
  if (!foreign.empty())
    fail(ErrorKind::usage, "{}: {} was not made by mxfp4-pack; move it away first", out, printable(foreign));
}

std::string move_to_kept(const std::string& from, const std::string& to) {
  for (int n = 1;; ++n)
    if (std::string kept = fmt::format("{}.kept-{}", to, n); move_to_free_name(from, kept)) return kept;
}

void remove_directory(const std::string& old, const std::string& fresh, const IsOwn& is_own, const std::string& last) {
  make_folders_writable(old);
  bool open = false;
  do {  // again where something came meanwhile
    if (open)
      fail(ErrorKind::io, "{}: a program still has files open in it; when it has ended, remove it with clean", old);
    for (const Entry& entry : entries_below(old)) {
      const std::string& name = entry.name;
      if (name == last) continue;
      if (entry.is_folder())
        keep_if_strange(entry, fs::path(fresh) / name, is_own(name));
      else if (is_own(name))
        fs::remove(entry.path);
      else if (is_removed_but_open(entry))
        open = true;
      else
        move_stranger(entry.path, fs::path(fresh) / name);
    }
  } while (!remove_folders(old, last));
}

void remove_own(const std::string& dir, const std::set<std::string>& names, const std::string& last) {
  make_folders_writable(dir);
  for (const Entry& entry : entries_below(dir))
    if (!entry.is_folder() && entry.name != last && names.count(entry.name)) fs::remove(entry.path);
  if (!remove_folders(dir, last))
    fail(ErrorKind::usage, "{}: {} was not made by mxfp4-pack; move it away", dir, printable(foreign_in(dir, {last})));
}

}  // namespace mxfp4
