// Replaces a directory by another one in the same folder.
#pragma once

#include <string>

#include "src/base/folder.h"

namespace mxfp4 {

/// Exchanges the names `fresh` and `name` in one step. Returns false if the file system cannot.
bool swap_at_once(const Folder& above, const std::string& fresh, const std::string& name);

/// Renames `fresh` to `name`. The old directory gets the name `fresh` or, if the file system cannot swap, `aside`.
void swap_folders(const Folder& above, const std::string& fresh, const std::string& name, const std::string& aside);

/// Renames a folder. Fails unless `to` is missing or an empty folder.
void rename_to(const Folder& above, const std::string& from, const std::string& to);

/// Throws Error{usage} if overlayfs cannot move a folder, since it is in a lower layer. Only an attempt can show this.
/// partial: a folder that is not empty, so that the attempt fails and changes nothing. out: the folder's name in
/// messages.
void check_movable(const Folder& above, const std::string& name, const std::string& partial, const std::string& out);

}  // namespace mxfp4
