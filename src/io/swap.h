// Gives a directory of one folder a name in another folder, also if that name is taken.
#pragma once

#include <string>

#include "src/base/folder.h"

namespace mxfp4 {

/// A name in a folder.
struct Entrance {
  const Folder& folder;
  std::string name;
};

/// Renames a directory. If the name is taken, exchanges both directories in one step or, if the file system cannot,
/// first renames the other directory to `aside` in the first folder.
void swap_folders(const Entrance& fresh, const Entrance& to, const std::string& aside);

/// Renames a folder. Fails if the new name is taken.
void rename_to(const Entrance& from, const Entrance& to);

/// Throws Error{usage} if overlayfs cannot move a folder, since it is in a lower layer. Only an attempt can show this.
/// taken: a folder that is not empty, so that the attempt fails and changes nothing. out: the folder's name in
/// messages.
void check_movable(const Entrance& from, const Entrance& taken, const std::string& out);

}  // namespace mxfp4
