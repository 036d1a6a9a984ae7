// OUT's files, opened together. If OUT is replaced later, all reads still see the same output.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/base/error.h"
#include "src/io/source_folder.h"

namespace mxfp4 {

class HeldFiles {
 public:
  /// If the directory cannot be opened, every file in it counts as missing.
  explicit HeldFiles(const std::string& out);
  explicit HeldFiles(Folder out);

  /// Opens a file of OUT by its relative name. At most a quarter of the process's file descriptors stay open; other
  /// files are opened by name in the opened directory, which never holds another output's files. If a file cannot be
  /// opened, path() reports the reason.
  void hold(const std::string& name);
  bool holds(const std::string& name) const { return held_.count(name) > 0; }
  /// The opened directory, even after a rename. Holds nothing if OUT did not exist.
  const Folder& folder() const { return source_->folder(); }
  const std::shared_ptr<const SourceFolder>& source() const { return source_; }
  /// A path to the opened file, even after a rename. Empty, with the reason as a problem, if the file could not be
  /// opened.
  std::string path(const std::string& name, Problems& problems) const;
  /// Throws Error{io} unless the directory and the file of that name are still those that were opened.
  void throw_if_replaced(const std::string& name) const;
  /// Closes all files. Nothing can be read after this call.
  void close() { held_.clear(); }

 private:
  struct Held {
    Fd fd;  // empty: not opened, or an error in `problems`
    Problems problems;
  };
  std::string out_;
  std::shared_ptr<const SourceFolder> source_;
  std::map<std::string, Held> held_;
};

}  // namespace mxfp4
