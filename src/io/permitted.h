// The permissions that a source gives to group and others.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>

#include "src/base/folder.h"

namespace mxfp4 {

/// The permissions that all files and folders of a source give to group and others. Each file is added by its
/// descriptor, since its name may lead to another file at the time of reading.
class Permitted {
 public:
  void add(const Fd& file);
  void add(const Folder& folder);

  /// The permission bits of group and others that new files, or new folders, must not have. All of them if nothing was
  /// added.
  mode_t denied(bool is_folder) const { return !group_ ? 077 : is_folder ? denied_folder_ : denied_; }
  /// The group of everything that was added; none if there are several.
  std::optional<gid_t> group() const { return same_group_ ? group_ : std::nullopt; }

 private:
  void add(const struct stat& s, mode_t read, bool has_list);

  mode_t denied_ = 0, denied_folder_ = 0;
  std::optional<gid_t> group_;
  bool same_group_ = true;
};

/// The permissions of a folder and of everything in it. A link counts as its target.
Permitted permitted_in(const Folder& folder);

/// Whether a file or folder has an access list of more than its mode.
bool has_access_list(const Fd& file);
bool has_access_list(const Folder& folder);

}  // namespace mxfp4
