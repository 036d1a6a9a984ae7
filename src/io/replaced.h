// A directory that was replaced by another: the files that this tool made in it are removed, all others are kept.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/file.h"

namespace mxfp4 {

/// The relative names of the files that this tool made in a directory; empty where it made none.
using ListOwn = std::function<std::vector<std::string>(const std::string& dir)>;
/// Whether a file or an empty folder, by its relative name, may be removed.
using IsOwn = std::function<bool(const std::string& name)>;

/// The state of each file of a directory, by relative name; links are not followed.
using Snapshot = std::map<std::string, FileState>;
Snapshot snapshot_of(const std::string& dir);

/// The folders, by relative name, that files of these relative names lie in.
std::set<std::string> folders_of(const std::set<std::string>& names);

/// The first file of `dir` that is not in `names`, or folder that holds none of them; empty where there is none.
std::string foreign_in(const std::string& dir, const std::set<std::string>& names);

/// Whether something is there, an empty folder aside.
bool is_taken(const std::string& path);

/// Throws Error{usage} unless `dir`, `out` in messages, is a directory in which every file was made by this tool.
void check_replaceable(const std::string& out, const std::string& dir, const ListOwn& made);

/// Gives `from` the first name TO.kept-N that is free, and returns it.
std::string move_to_kept(const std::string& from, const std::string& to);

/// Removes `old`. A file that is not `is_own` and not in `fresh` already is moved to `fresh`, under its name or, where
/// that is taken, "NAME.kept-N", and an empty folder that is not is made there; a note names each. last: the file of
/// `old` that says which are its own; it is removed last, so that a later run can finish this after an interruption.
void remove_directory(const std::string& old, const std::string& fresh, const IsOwn& is_own, const std::string& last);

/// Removes the files `names` of a directory, also where folders are read-only, then `last`, then the directory. Throws
/// where something else is in it; that and `last` stay.
void remove_own(const std::string& dir, const std::set<std::string>& names, const std::string& last);

}  // namespace mxfp4
