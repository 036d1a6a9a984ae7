#include "src/io/replaced.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/long_text.h"
#include "src/io/privacy.h"
#include "src/io/stage.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

void make_folders_writable(const Folder& dir) {
  dir.make_writable();
  walk(dir, [&](const Entry& entry) {
    if (entry.is_folder())
      if (const Folder below = dir.find(entry.name)) below.make_writable();  // before the walk enters it
    return true;
  });
}

bool have_same_bytes(const Fd& a, const Fd& b) {
  std::string left(size_t(text_block), '\0'), right = left;
  const int64_t bytes = a.stat().st_size;
  for (int64_t at = 0, part; at < bytes; at += part) {
    part = std::min(bytes - at, text_block);
    a.read(left.data(), part, at);
    b.read(right.data(), part, at);
    if (std::memcmp(left.data(), right.data(), size_t(part)) != 0) return false;
  }
  return true;
}

/// Whether a name is a placeholder for a removed file that is still open, on NFS or libfuse.
bool is_removed_but_open(const Entry& entry) {
  const std::string name = entry.path.filename().string();
  return name.starts_with(".nfs0") || name.starts_with(".fuse_hidden0");
}

/// Renames an entry; false if the name `to` is taken.
bool move_to_free_name(const Folder& in, const std::string& name, const Folder& there, const std::string& to) {
  int error = in.rename(name, there, to, RENAME_NOREPLACE);
  if (error == EEXIST) return false;
  if (error == EINVAL || error == ENOSYS) {
    if (there.has(to)) return false;
    error = in.rename(name, there, to);
  }
  if (error != 0) fail_errno(in.path(name), "cannot move aside", error);
  return true;
}

/// Creates a folder and the folders above it, each with its mode in `old`.
void make_folders(const Folder& old, const Folder& fresh, const std::string& name) {
  if (name.empty() || fresh.has(name)) return;
  make_folders(old, fresh, fs::path(name).parent_path().string());
  const Folder made = fresh.make(name);
  if (const Folder was = old.find(name)) Privacy::keep(made, was);
}

void remove_file(const Folder& dir, const std::string& name) {
  if (const int error = dir.unlink(name); error != 0 && error != ENOENT)
    fail_errno(dir.path(name), "cannot remove", error);
}

void move_stranger(const Folder& old, const Folder& fresh, const std::string& name) {
  if (is_in_both(old, fresh, name)) return remove_file(old, name);
  make_folders(old, fresh, fs::path(name).parent_path().string());
  std::string to = name;
  for (int n = 1; !move_to_free_name(old, name, fresh, to); ++n) to = fmt::format("{}.kept-{}", name, n);
  note(fmt::format("{}: was added by another program during this run, and is kept", fresh.path(to)));
}

/// Creates in `fresh` an empty folder that this tool did not make.
void keep_if_strange(const Folder& old, const Folder& fresh, const std::string& name) {
  const Folder folder = old.find(name);
  if (!folder || !names_in_folder(folder).empty() || fresh.has(name)) return;
  make_folders(old, fresh, name);
  note(fmt::format("{}: an empty folder of the replaced output, and is kept", fresh.path(name)));
}

/// Removes an empty directory, unless its name leads elsewhere. Returns false if the directory is not empty.
bool remove_name(const HeldFolder& dir) {
  if (!dir.is_in_place()) return true;  // somebody moved it, and may keep it
  const int error = dir.above.rmdir(dir.name);
  if (error != 0 && error != ENOTEMPTY && error != EEXIST) fail_errno(dir.folder.path(), "cannot remove", error);
  return error == 0;
}

/// Removes a directory that contains only folders and the file `last`. Returns false if it has another file.
bool remove_folders(const HeldFolder& dir, const std::string& last) {
  const auto entries = entries_below(dir.folder);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {  // contents before their folder
    if (entry->name == last) continue;
    const int error = dir.folder.rmdir(entry->name);
    if (error == ENOTEMPTY || error == EEXIST || error == ENOTDIR) return false;
    if (error != 0 && error != ENOENT) fail_errno(dir.folder.path(entry->name), "cannot remove", error);
  }
  if (!last.empty()) remove_file(dir.folder, last);
  return remove_name(dir);
}

}  // namespace

bool is_in_both(const Folder& old, const Folder& fresh, const std::string& name) {
  const auto a = old.look(name), b = fresh.look(name);
  if (!a || !b || (a->st_mode & S_IFMT) != (b->st_mode & S_IFMT)) return false;
  if (identity_of(*a) == identity_of(*b)) return true;
  if (S_ISLNK(a->st_mode)) return old.link_target(name) == fresh.link_target(name);
  return S_ISREG(a->st_mode) && a->st_size == b->st_size &&
         have_same_bytes(open_read(old, name), open_read(fresh, name));
}

bool HeldFolder::is_still_there() const {
  if (!is_in_place()) return false;
  const int error = folder.touch();
  return error != ENOENT && error != ESTALE;
}

Snapshot snapshot_of(const Folder& dir) {
  Snapshot files;
  for (const Entry& entry : entries_below(dir))
    if (!entry.is_folder()) files[entry.name] = state_of(entry.state);
  return files;
}

std::set<std::string> folders_of(const std::set<std::string>& names) {
  std::set<std::string> folders;
  for (const std::string& name : names)
    for (fs::path p = fs::path(name).parent_path(); p.has_relative_path(); p = p.parent_path())
      folders.insert(p.string());
  return folders;
}

std::string foreign_in(const Folder& dir, const std::set<std::string>& names) {
  const std::set<std::string> folders = folders_of(names);
  for (const Entry& entry : entries_below(dir)) {
    if (!(entry.is_folder() ? folders : names).count(entry.name)) return entry.name;
  }
  return {};
}

bool is_taken(const Folder& above, const std::string& name) {
  if (!above.has(name)) return false;
  const Folder folder = above.find(name);
  return !folder || !names_in_folder(folder).empty();
}

void check_replaceable(const std::string& out, const Folder& dir, const ListOwn& made) {
  const std::vector<std::string> names = dir ? made(dir) : std::vector<std::string>();
  if (names.empty())
    fail(ErrorKind::usage, "{}: exists, and nothing in it says that this command made it; choose another place", out);
  std::set<std::string> all(names.begin(), names.end());
  if (has_run_file(dir)) all.insert(run_file);
  const std::string foreign = foreign_in(dir, all);
  if (!foreign.empty())
    fail(ErrorKind::usage, "{}: {} was not made by mxfp4-pack; move it away first", out, printable(foreign));
}

void remove_directory(const HeldFolder& old, const Folder& fresh, const IsOwn& is_own, const std::string& last) {
  make_folders_writable(old.folder);
  bool open = false;
  do {  // again if a file was added in the meantime
    if (open)
      fail(ErrorKind::io, "{}: a program still has files open in it; when it has ended, remove it with clean",
           old.folder.path());
    for (const Entry& entry : entries_below(old.folder)) {
      const std::string& name = entry.name;
      if (name == last || (entry.is_folder() && is_own(name))) continue;
      if (entry.is_folder())
        keep_if_strange(old.folder, fresh, name);
      else if (is_own(name))
        remove_file(old.folder, name);
      else if (is_removed_but_open(entry))
        open = true;
      else
        move_stranger(old.folder, fresh, name);
    }
  } while (!remove_folders(old, last));
}

void remove_own(const HeldFolder& dir, const std::set<std::string>& names, const std::string& last) {
  make_folders_writable(dir.folder);
  for (const Entry& entry : entries_below(dir.folder))
    if (!entry.is_folder() && entry.name != last && names.count(entry.name)) remove_file(dir.folder, entry.name);
  if (!remove_folders(dir, last))
    fail(ErrorKind::usage, "{}: {} was not made by mxfp4-pack; move it away", dir.folder.path(),
         printable(foreign_in(dir.folder, {last})));
}

}  // namespace mxfp4
