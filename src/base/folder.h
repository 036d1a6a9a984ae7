// Folders held by a descriptor, and their entries.
//
// A held folder stays the same folder even if its name leads elsewhere later. A name in it is looked up step by step
// below the descriptor, and no step may be a link: nothing outside of the folder is ever reached.
//
// Use the functions that list instead of std::filesystem's iterators. In libstdc++ 13 and later, these iterators build
// an entry's path in a noexcept function, so a failed allocation there ends the program.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/file.h"

namespace mxfp4 {

/// Brings the names in a folder that is open for reading to disk.
void sync_names(const Fd& folder);

class Folder {
 public:
  /// Holds nothing.
  Folder() = default;
  /// Opens a folder by its path, through links. Throws Error{io}.
  static Folder open(const std::string& path);
  /// Opens a folder by its path, through links. If that fails, the result holds nothing and errno has the reason.
  static Folder try_open(const std::string& path);

  /// The same folder under a second descriptor, and on request with another path for messages.
  Folder again() const { return again(path()); }
  Folder again(std::string path) const;

  explicit operator bool() const { return bool(fd_); }
  /// The path by which it was opened: for messages.
  const std::string& path() const { return fd_.name(); }
  std::string path(const std::string& name) const { return fd_.name() + "/" + name; }
  /// A path to the held folder, even if the folder was moved. Without /proc: path().
  std::string lasting_path() const;
  /// See Fd.
  std::string proc_path() const { return fd_.proc_path(); }
  std::string current_path() const { return fd_.current_path(); }
  int fd() const { return fd_.get(); }
  struct stat stat() const {
    return fd_.stat();
  }
  /// Whether it belongs to this user.
  bool is_own() const;
  /// Whether `name` in `above` is this folder.
  bool is_at(const Folder& above, const std::string& name) const;

  /// lstat() of a name; none if the name does not exist. Throws Error{io} if lstat() fails for another reason.
  std::optional<struct stat> look(const std::string& name) const;
  bool has(const std::string& name) const { return look(name).has_value(); }
  bool has_file(const std::string& name) const;
  /// A folder in this one. Holds nothing if the name does not exist, or is a file or a link.
  Folder find(const std::string& name) const;
  /// The folder above this one; the root is above itself. Holds nothing if it cannot be opened.
  Folder parent() const;
  /// Makes a folder that only this user may enter. Throws Error{io} if the name is taken.
  Folder make(const std::string& name) const;
  /// Creates such a folder, if the name is free. Returns 0, also if a folder has the name, or errno.
  int try_make(const std::string& name) const;
  /// Creates such a folder, or opens the folder of that name that another process has created.
  Folder make_or_find(const std::string& name) const;

  /// Like openat() with O_NOFOLLOW. Returns the descriptor, or none with errno set.
  Fd open(const std::string& name, int flags, mode_t mode = 0) const;
  /// These functions return 0 or errno. The flags of rename() are those of renameat2().
  int unlink(const std::string& name) const;
  int rmdir(const std::string& name) const;
  int rename(const std::string& name, const Folder& to, const std::string& new_name, unsigned flags = 0) const;
  int link(const std::string& name, const Folder& to, const std::string& new_name) const;
  /// Links an open file, even if the file was moved. Needs /proc.
  int link_file(const Fd& file, const std::string& new_name) const;
  int symlink(const std::string& target, const std::string& name) const;
  /// The target of a link; none if the name is no link.
  std::optional<std::string> link_target(const std::string& name) const;
  /// Give a name, or the folder itself, the current time.
  int touch(const std::string& name) const;
  int touch() const;
  /// A descriptor of the folder itself for fsync() and fchmod(). Without permission to read: none, and errno.
  Fd readable() const;
  /// Lets this user alone list, change and enter it, if the file system has modes.
  void make_private() const;
  /// Whether it is this user's, and others may not enter it. If the file system has no modes: not write in it.
  bool is_private() const;
  /// Lets this user list, change and enter it, if the folder is this user's. Returns the mode that it had.
  mode_t make_writable() const;
  /// Sets its permission bits, if the folder is this user's and they differ.
  void set_mode(mode_t mode) const;
  /// Syncs the names in the folder.
  void sync() const { sync_names(readable()); }

 private:
  friend class FolderOfName;
  explicit Folder(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;  // O_PATH
};

/// A folder and all folders that it lies in.
std::set<Identity> folders_above(const Folder& folder);

/// Like the functions of these names in file.h, for a name in a folder. Only this user can access new files.
Fd open_read(const Folder& folder, const std::string& name);
Fd open_write(const Folder& folder, const std::string& name);
Fd open_own(const Folder& folder, const std::string& name);
Fd open_text(const Folder& folder, const std::string& name, int64_t limit);
std::string read_text(const Folder& folder, const std::string& name, int64_t limit);
void write_text(const Folder& folder, const std::string& name, std::string_view text);

/// A name in a folder that is walked, or in one below it. Links are not followed.
struct Entry {
  std::string name;  // relative to the folder that is walked: "packed/model-00001.safetensors"
  std::filesystem::path path;
  struct stat state;  // lstat's
  bool is_folder() const { return S_ISDIR(state.st_mode); }
  bool is_file() const { return S_ISREG(state.st_mode); }
  bool is_link() const { return S_ISLNK(state.st_mode); }
};

/// The action for an unreadable folder: throw std::filesystem::filesystem_error, or skip the folder. If memory is
/// short, both throw std::bad_alloc.
enum class Unreadable { fail, skip };

/// The names in a folder, sorted.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder, Unreadable unreadable = Unreadable::fail);
std::vector<std::string> names_in_folder(const Folder& folder, Unreadable unreadable = Unreadable::fail);

/// Calls visit for all entries below a folder, by name, each folder before its entries. A folder is entered after its
/// visit, if that returns true. An entry that vanishes before its visit is left out.
using Visit = std::function<bool(const Entry&)>;
void walk(const std::filesystem::path& folder, const Visit& visit, Unreadable unreadable = Unreadable::fail);
void walk(const Folder& folder, const Visit& visit, Unreadable unreadable = Unreadable::fail);
/// The list of all entries below a folder.
std::vector<Entry> entries_below(const std::filesystem::path& folder, Unreadable unreadable = Unreadable::fail);
std::vector<Entry> entries_below(const Folder& folder, Unreadable unreadable = Unreadable::fail);
/// The relative names of all entries that are not folders.
std::vector<std::string> files_below(const Folder& folder);

/// Removes a file, or a folder with its contents; links are not followed. A missing name is no error. Throws
/// std::filesystem::filesystem_error.
void remove_tree(const Folder& folder, const std::string& name);

}  // namespace mxfp4
