// A private folder for a run's temporary files.
#pragma once

#include <string>

#include "src/base/file.h"
#include "src/base/folder.h"

namespace mxfp4 {

/// A folder in $TMPDIR, or /tmp, that only this user can enter. It is removed at the end. If a signal ends the program,
/// the next ScratchFolder removes it: a lock tells that its program has ended.
class ScratchFolder {
 public:
  /// The only name that may be in the folder.
  static constexpr const char* only_name = "files";

  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Fd lock_;
};

}  // namespace mxfp4
