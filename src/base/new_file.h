// Places that a path of the command line names: held from the beginning of a command to its end.
#pragma once

#include <string>
#include <string_view>

#include "src/base/folder.h"

namespace mxfp4 {

/// The last step of a path: its name, and the folder above it, which is held. The step itself is not followed if it is
/// a link. The folder's path is absolute and without links. If the folder cannot be opened, it holds nothing, and errno
/// has the reason.
struct LastStep {
  Folder above;
  std::string name;
};
LastStep last_step(const std::string& path);

/// A file that a command makes at its end. Its folder is held from the beginning, so the file cannot go elsewhere if
/// somebody exchanges a folder or a link of the path.
class NewFile {
 public:
  /// Throws Error{usage} if the name is taken, Error{io} if the folder cannot be opened.
  explicit NewFile(const std::string& path);
  /// Throws Error{io} if somebody has made a file of this name meanwhile. After an error there is no file.
  void write(std::string_view text) const;

 private:
  std::string path_;
  LastStep step_;
};

}  // namespace mxfp4
