// What a source permits to others than its owner.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>

#include "src/base/folder.h"

namespace mxfp4 {

/// What the files and folders of a source permit to group and others, all together. Each is added by its descriptor: a
/// name could lead elsewhere when the file is read.
class Permitted {
 public:
  void add(const Fd& file);
  void add(const Folder& folder);

  /// The permission bits that are denied to group and others: to files, or to folders. Nothing was added: all.
  mode_t denied(bool is_folder) const { return !group_ ? 077 : is_folder ? denied_folder_ : denied_; }
  /// The group of all that was added; none if there are several.
  std::optional<gid_t> group() const { return same_group_ ? group_ : std::nullopt; }

 private:
  void add(const struct stat& s, mode_t read, bool has_list);

  mode_t denied_ = 0, denied_folder_ = 0;
  std::optional<gid_t> group_;
  bool same_group_ = true;
};

/// Of a folder and all that is in it. A link counts as what it leads to.
Permitted permitted_in(const Folder& folder);

/// Whether a folder has an access list of more than its mode.
bool has_access_list(const Folder& folder);

}  // namespace mxfp4
