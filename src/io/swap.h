// A directory that takes the place of another, in the folder that both lie in.
#pragma once

#include <string>

#include "src/base/folder.h"

namespace mxfp4 {

/// Gives `fresh` the name `name` and the other way round, in one step. False if the file system cannot.
bool swap_at_once(const Folder& above, const std::string& fresh, const std::string& name);

/// Gives `fresh` the name `name`. What has it then has the name `fresh` or, if the file system cannot swap, `aside`.
void swap_folders(const Folder& above, const std::string& fresh, const std::string& name, const std::string& aside);

/// Renames a folder. Fails unless `to` is missing or an empty folder.
void rename_to(const Folder& above, const std::string& from, const std::string& to);

/// Throws Error{usage} if overlayfs cannot move a folder, since it is in a lower layer: only an attempt can tell.
/// partial: a folder that is not empty, whose place no other folder takes, so that the attempt changes nothing. out:
/// what messages call the folder.
void check_movable(const Folder& above, const std::string& name, const std::string& partial, const std::string& out);

}  // namespace mxfp4
