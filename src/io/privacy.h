// Who may read an output: nobody who may not read its source.
//
// A file or folder is made for this user alone and then given its mode. So neither the umask nor an access list that
// the folder above passes on decides in between, and the library never sets the umask of its process.
#pragma once

#include <sys/types.h>

#include <optional>

#include "src/base/folder.h"

namespace mxfp4 {

class Permitted;

class Privacy {
 public:
  /// Of what has no source: the umask alone decides.
  Privacy();
  /// No more than the source permits.
  explicit Privacy(const Permitted& source);

  /// Of the permission bits `mode` of a file or folder those that the source permits. group: that of the new file. What
  /// the source permits to its own group is no permission for another one, nor is what it permits to others one for its
  /// group.
  mode_t limit(mode_t mode, gid_t group, bool is_folder) const;
  /// Gives a file that this process has made the mode 0666 less umask and limit(), a folder 0777 less both, and takes
  /// inherited access lists away. A file system without modes stays as it is.
  void apply(const Fd& made) const;
  void apply(const Folder& made) const;
  /// Gives a folder limit(mode).
  void apply(const Folder& made, mode_t mode) const;
  /// Gives a file or folder that stands for one of others the mode that that has.
  static void keep(const Fd& made, mode_t mode);
  static void keep(const Folder& made, mode_t mode);

 private:
  mode_t umask_, denied_ = 0, denied_folder_ = 0;
  bool has_source_ = false;
  std::optional<gid_t> group_;  // of all of the source; none: there are several
};

/// The umask of this process, which is not set for that; 077 if the system does not say.
mode_t process_umask();

}  // namespace mxfp4
