// A folder of which files are read: a checkpoint's, or an output's. It is held by a descriptor, and so is each file
// when its place is checked. So whoever renames or replaces something meanwhile cannot pass off another file.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "src/base/folder.h"
#include "src/io/link.h"
#include "src/io/permitted.h"

namespace mxfp4 {

class Problems;

class SourceFolder {
 public:
  /// Holds nothing if the folder cannot be opened; errno says why.
  explicit SourceFolder(const std::string& dir, Links links = Links::stay);
  explicit SourceFolder(Folder held, Links links = Links::stay);

  const Folder& folder() const { return folder_; }
  /// Leads to a name in the held folder, through links. Whoever opens it compares the file with what open() gave.
  std::string path(const std::string& name) const { return folder_.lasting_path() + "/" + name; }

  /// Opens a regular file below the folder, through links. None and a problem if the file is missing, not regular, not
  /// readable, or if a link leads to it that may not be followed.
  Fd open(const std::string& name, Problems& problems) const;
  /// The same for a text of at most `limit` bytes; empty if there is a problem. Throws Error{input} if it is longer.
  std::string text(const std::string& name, int64_t limit, Problems& problems) const;
  /// Whether open() would refuse the name because of where its link leads.
  bool leads_out(const std::string& name) const;

  /// What all that was opened so far permits: the folder, the files, and the folders through which only these files
  /// are reached.
  Permitted permitted() const;

 private:
  using Identity = std::pair<dev_t, ino_t>;

  std::string place_of(const Fd& found, const std::string& name) const;
  bool may_follow(const std::string& place) const;
  Fd open_found(const Fd& found, const std::string& name) const;
  bool add_permitted(const Fd& file, const std::string& place) const;

  Links links_;
  Folder folder_;
  mutable std::mutex mutex_;  // of what follows
  mutable Permitted permitted_;
  mutable std::set<Identity> known_;  // folders that are added, and those above folder_
};

}  // namespace mxfp4
