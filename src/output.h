// An output directory that appears whole or not at all: built beside its place, synced, renamed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/file.h"

namespace mxfp4 {

class OutputDir {
 public:
  /// The relative names of the files that this tool made in a directory; empty where it is none of ours.
  using Made = std::function<std::vector<std::string>(const std::string& dir)>;

  /// Refuses an OUT that is `source` (may be empty), lies inside it or holds it, and one that exists, unless `made`
  /// is given and names every file in it.
  OutputDir(const std::string& out, const std::string& source, const Made& made = nullptr);
  /// Removes what was built, unless committed.
  ~OutputDir();
  OutputDir(const OutputDir&) = delete;

  /// Where a relative name is built; its folders are made.
  std::string path(const std::string& name) const;
  /// Creates a file of `bytes` bytes, its space reserved where the file system can.
  Fd create(const std::string& name, int64_t bytes) const;
  /// Throws Error{io} where the file system has less than `bytes` free.
  void check_space(int64_t bytes) const;
  /// Syncs every folder and puts the directory in its place; a forced predecessor is removed afterwards.
  void commit();

 private:
  std::string out_, partial_;
  bool replace_ = false, committed_ = false;
};

}  // namespace mxfp4
