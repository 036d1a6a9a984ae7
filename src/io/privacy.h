// Restricts the readers of an output to the readers of its source.
//
// A file or folder is created for this user alone, and then gets its mode. So neither the umask nor an inherited access
// list decides in between, and the library never sets the umask of its process.
#pragma once

#include <sys/types.h>

#include <optional>

#include "src/base/folder.h"

namespace mxfp4 {

class Permitted;

class Privacy {
 public:
  /// For files without a source: only the umask decides.
  Privacy();
  /// For files with a source: the umask and the source's permissions decide.
  explicit Privacy(const Permitted& source);

  /// The permission bits of `mode` that the source permits for a new file or folder. group: the group of the new file.
  /// If it is not the source's group, its members get only bits that the source gives to both its group and others.
  mode_t limit(mode_t mode, gid_t group, bool is_folder) const;
  /// Gives a file that this process has created the mode 0666, a folder 0777, less the umask and less the bits that
  /// limit() denies. Removes inherited access lists. Does nothing on a file system without modes.
  void apply(const Fd& made) const;
  void apply(const Folder& made) const;
  /// Gives a folder that takes the place of this user's `old` the old group and mode, as far as limit() permits it.
  void apply(const Folder& made, const Folder& old) const;
  /// Gives a copy of a file or folder of others the owner, group and mode of the original, as far as this user may.
  /// Group and others get nothing if the original has an access list, the group nothing if it is another one.
  static void keep(const Fd& made, const Fd& old);
  static void keep(const Folder& made, const Folder& old);

 private:
  mode_t umask_, denied_ = 0, denied_folder_ = 0;
  bool has_source_ = false;
  std::optional<gid_t> group_;  // of the whole source; none: there are several
};

/// The umask of this process, read without setting it; 077 if the system does not provide it.
mode_t process_umask();

}  // namespace mxfp4
