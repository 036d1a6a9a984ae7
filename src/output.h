// An output directory that appears whole or not at all: built beside its place, synced, renamed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/journal.h"

namespace mxfp4 {

/// What becomes of the partial output that an interrupted run left.
enum class Leftover { refuse, resume, discard };

/// What a run is given, as checksums, and how it begins.
struct Start {
  Leftover leftover = Leftover::refuse;
  std::string options = "-", source = "-";
};

class OutputDir {
 public:
  /// The relative names of the files that this tool made in a directory; empty where it is none of ours.
  using Made = std::function<std::vector<std::string>(const std::string& dir)>;

  /// Locks the place. Refuses an OUT that is `source` (may be empty), lies inside it or holds it, one that another run
  /// is writing, one that exists, unless `made` is given and names every file in it, and one with a leftover that
  /// `start` does not take over: Leftover::resume does so where the leftover was given the same.
  OutputDir(const std::string& out, const std::string& source, const Made& made = nullptr, const Start& start = {});
  /// Removes what was built, unless committed or kept.
  ~OutputDir();
  OutputDir(const OutputDir&) = delete;

  /// Where a relative name is built; its folders are made.
  std::string path(const std::string& name) const;
  /// Creates a file of `bytes` bytes, its space reserved where the file system can and is no memory. What a run before
  /// this one wrote to it stays.
  Fd create(const std::string& name, int64_t bytes) const;
  /// Throws Error{io} where the file system has less than `bytes` free.
  void check_space(int64_t bytes) const;
  /// The finished jobs of this run and of those that it continues.
  Journal& journal() { return journal_; }
  /// Whether an error from here on leaves a partial output that can be continued, if a job is finished.
  void keep(bool keep) { keep_ = keep; }
  /// True where a run that this one continues was cut short after the directory came into its place.
  bool committed() const { return committed_; }
  /// Syncs every folder and puts the directory in its place; a forced predecessor is removed afterwards.
  void commit();

 private:
  struct Place {
    std::string path;
  };
  OutputDir(Place place, const std::string& out);
  bool take_over(const std::string& out, const Start& start);
  void begin(const Start& start);
  void rename_into_place();
  void remove_replaced();

  std::string out_, partial_;
  Journal journal_;
  bool leftover_;  // the journal is of an earlier run, which this one has nothing to do with yet
  bool replace_ = false, keep_ = false, committed_ = false;
};

}  // namespace mxfp4
