// OUT's files, opened together: whatever takes OUT's place later, what is read through them is one output.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/base/error.h"
#include "src/io/source_folder.h"

namespace mxfp4 {

class HeldFiles {
 public:
  /// If the directory cannot be opened, every file of it counts as missing.
  explicit HeldFiles(const std::string& out);
  explicit HeldFiles(Folder out);

  /// Opens a file of OUT by its relative name, as long as a quarter of the descriptors that the process may have is
  /// enough; the others are found through the directory that was opened, which never holds another output's files. What
  /// cannot be opened is remembered for path().
  void hold(const std::string& name);
  bool holds(const std::string& name) const { return held_.count(name) > 0; }
  /// The directory that was opened, wherever it is by now. Holds nothing if there was none.
  const Folder& folder() const { return source_->folder(); }
  const std::shared_ptr<const SourceFolder>& source() const { return source_; }
  /// Leads to the file that was opened, wherever it is by now. Empty, and the reason a problem, where there is none.
  std::string path(const std::string& name, Problems& problems) const;
  /// Throws Error{io} unless OUT is still the directory that was opened, with the same file of that name in it.
  void throw_if_replaced(const std::string& name) const;
  /// Closes all files: nothing is read any more.
  void close() { held_.clear(); }

 private:
  struct Held {
    Fd fd;  // none: see problems, or not opened yet
    Problems problems;
  };
  std::string out_;
  std::shared_ptr<const SourceFolder> source_;
  std::map<std::string, Held> held_;
};

}  // namespace mxfp4
