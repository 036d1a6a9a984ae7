// A folder whose files are read: a checkpoint or an output. A descriptor holds the folder, and each file from the check
// of its place on. So nobody can substitute another file by renaming during the run.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "src/base/folder.h"
#include "src/io/link.h"
#include "src/io/permitted.h"

namespace mxfp4 {

class Problems;

class SourceFolder {
 public:
  /// Holds nothing if the folder cannot be opened; errno has the reason.
  explicit SourceFolder(const std::string& dir, Links links = Links::stay);
  explicit SourceFolder(Folder held, Links links = Links::stay);

  const Folder& folder() const { return folder_; }
  /// A path to a name in the held folder, through links. After opening it, compare the file with the result of open().
  std::string path(const std::string& name) const { return folder_.lasting_path() + "/" + name; }

  /// Opens a regular file below the folder, through links. Returns none and reports a problem if the file is missing,
  /// not regular or not readable, or if a link to it may not be followed.
  Fd open(const std::string& name, Problems& problems) const;
  /// Reads a text of at most `limit` bytes; empty if there is a problem. Throws Error{input} if the text is longer.
  std::string text(const std::string& name, int64_t limit, Problems& problems) const;
  /// Whether open() would refuse the name because its link leads outside.
  bool leads_out(const std::string& name) const;

  /// The permissions of everything opened so far: the folder, the files, and the folders that lead only to these files.
  Permitted permitted() const;

 private:
  std::string place_of(const Fd& found, const std::string& name) const;
  bool may_follow(const std::string& place) const;
  Fd open_found(const Fd& found, const std::string& name) const;
  bool add_permitted(const Fd& file, const std::string& place) const;

  Links links_;
  Folder folder_;
  mutable std::mutex mutex_;  // guards the following members
  mutable Permitted permitted_;
  mutable std::set<Identity> known_;  // the added folders, and the folders above folder_
};

}  // namespace mxfp4
