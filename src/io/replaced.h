// Removes a directory that another one has replaced: files that this tool made are removed, all others are kept.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/folder.h"

namespace mxfp4 {

/// The relative names of the files that this tool made in a directory; empty if it made none.
using ListOwn = std::function<std::vector<std::string>(const Folder& dir)>;
/// Whether a file or an empty folder, by its relative name, may be removed.
using IsOwn = std::function<bool(const std::string& name)>;

/// A folder and the name that it had in the folder above when it was opened.
struct HeldFolder {
  Folder above;  // may hold nothing
  std::string name;
  Folder folder;  // holds nothing if the name was not there, or was no folder

  HeldFolder(const Folder& above_, std::string name_)
      : above(above_ ? above_.again() : Folder()),
        name(std::move(name_)),
        folder(above ? above.find(name) : Folder()) {}
  explicit operator bool() const { return bool(folder); }
  bool is_in_place() const { return folder && folder.is_at(above, name); }
  /// The same, also if the client of a file server remembers a folder that another node has removed. Sets its mtime.
  bool is_still_there() const;
  /// Whether the name belongs to something else than a folder. False if another process has made the folder since.
  bool is_taken() const {
    const auto s = above && !folder ? above.look(name) : std::nullopt;
    return s && !S_ISDIR(s->st_mode);
  }
};

/// The state of each file of a directory, by relative name; links are not followed.
using Snapshot = std::map<std::string, FileState>;
Snapshot snapshot_of(const Folder& dir);

/// The folders, by relative name, that contain files with these relative names.
std::set<std::string> folders_of(const std::set<std::string>& names);

/// The first file of `dir` that is not in `names`, or the first folder without such a file; empty if there is none.
std::string foreign_in(const Folder& dir, const std::set<std::string>& names);

/// Whether `b` has the same file or link under this name, or an equal one.
bool is_in_both(const Folder& a, const Folder& b, const std::string& name);

/// Whether a name exists and is not an empty folder.
bool is_taken(const Folder& above, const std::string& name);

/// Throws Error{usage} unless this tool made every file in `dir`. out: the directory's name in messages.
void check_replaceable(const std::string& out, const Folder& dir, const ListOwn& made);

/// Removes `old`. Files that are not `is_own` move to `fresh`, unless `fresh` has an equal file. They keep their names
/// or, if a name is taken, become "NAME.kept-N". Empty folders that are not `is_own` are created in `fresh`. A note
/// names each kept file and folder. last: the file of `old` that lists its own files. It is removed last, so that a
/// later run can finish an interrupted removal.
void remove_directory(const HeldFolder& old, const Folder& fresh, const IsOwn& is_own, const std::string& last);

/// Removes the files `names` of a directory, also from read-only folders; then `last`, then the directory. Throws if
/// the directory has another file; that file and `last` stay.
void remove_own(const HeldFolder& dir, const std::set<std::string>& names, const std::string& last);

}  // namespace mxfp4
