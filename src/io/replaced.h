// A directory that was replaced by another: the files that this tool made in it are removed, all others are kept.
#pragma once

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
  const Folder& above;
  std::string name;
  Folder folder;  // holds nothing if the name was not there, or was no folder

  HeldFolder(const Folder& above_, std::string name_)
      : above(above_), name(std::move(name_)), folder(above.find(name)) {}
  explicit operator bool() const { return bool(folder); }
  bool is_in_place() const { return folder && folder.is_at(above, name); }
};

/// The state of each file of a directory, by relative name; links are not followed.
using Snapshot = std::map<std::string, FileState>;
Snapshot snapshot_of(const Folder& dir);

/// The folders, by relative name, that files of these relative names lie in.
std::set<std::string> folders_of(const std::set<std::string>& names);

/// The first file of `dir` that is not in `names`, or folder that holds none of them; empty if there is none.
std::string foreign_in(const Folder& dir, const std::set<std::string>& names);

/// Whether a file or link of `a` is in `b` too, or its equal.
bool is_in_both(const Folder& a, const Folder& b, const std::string& name);

/// Whether a name is there and is more than an empty folder.
bool is_taken(const Folder& above, const std::string& name);

/// Throws Error{usage} unless this tool made every file in `dir`. out: what messages call it.
void check_replaceable(const std::string& out, const Folder& dir, const ListOwn& made);

/// Gives a name of `in` the first name TO.kept-N that is free in `there`, and returns it.
std::string move_to_kept(const Folder& in, const std::string& name, const Folder& there, const std::string& to);

/// Removes `old`. A file that is not `is_own` moves to `fresh`, unless `fresh` has it already. It keeps its name or, if
/// that is taken, becomes "NAME.kept-N". An empty folder that is not `is_own` is made in `fresh`. A note names each.
/// last: the file of `old` that lists its own files. It is removed last, so that a later run can finish the removal.
void remove_directory(const HeldFolder& old, const Folder& fresh, const IsOwn& is_own, const std::string& last);

/// Removes the files `names` of a directory, also if folders are read-only, then `last`, then the directory. Throws if
/// something else is in it; that and `last` stay.
void remove_own(const HeldFolder& dir, const std::set<std::string>& names, const std::string& last);

}  // namespace mxfp4
