// One part of a run that nodes carry out together: the files of a plan that are dealt to it, and a record of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/io/output.h"
#include "src/io/parts.h"
#include "src/plan/deal.h"

namespace mxfp4 {

/// A record in the journal of an output into which parts were moved. No job has this number.
inline constexpr int64_t parts_taken = -1;

/// Whether a name is a file of so many bytes.
bool has_size(const Folder& folder, const std::string& name, int64_t bytes);

/// What all parts of a run are given.
struct PartRun {
  std::string out;  // as the user calls it
  const Place& place;
  const Plan& plan;   // whose files and jobs are dealt out
  JournalHead head;   // only parts with the same options and source come together
  std::string whole;  // how to do without parts, where they do not
};

/// What is to be done of a part, and the bytes of the files that are written.
struct PartSize {
  int files = 0, jobs = 0;
  int64_t bytes = 0;
};
PartSize size_of(const Plan& plan, const Deal& deal, int part);

/// Says how a part ended; gives what --json prints.
Json report_part(const std::string& out, const PartNumber& part, const PartSize& size, bool unchanged,
                 const std::string& how);

/// How one part is written.
struct PartWork {
  PartNumber number;
  Json command;                                       // from which merge makes the run again
  std::shared_ptr<const SourceFolder> source_folder;  // limits the modes
  std::string mark;                                   // a file of OUT, by which another output in its place is known
  bool is_new = true;                                 // OUT was not there
  std::function<Json(OutputDir& out, const Deal& deal)> write;  // returns seconds, "wall" among them
};

/// Writes a part's files and its record, and nothing where that was done. Says it, and returns what --json prints.
Json write_part(const PartRun& run, const PartWork& work);

/// The finished parts of a run. Throws Error{usage} where one was given something else, or is one of another number of
/// parts.
class Parts {
 public:
  /// count: how many there are to be; 0: what the first found says.
  explicit Parts(const PartRun& run, int count = 0);

  bool has(int part) const { return found_[size_t(part)] != nullptr; }
  /// How many there are to be.
  int count() const { return int(found_.size()); }
  /// Those that have something to write and are not there, or not whole.
  std::vector<int> missing() const;
  const Deal& dealt() const { return deal_; }
  /// Those that are there, also where one number is there twice or a part is not whole.
  const std::vector<PartFolder>& all() const { return all_; }
  /// Moves the parts' files into the partial output and hands what their records say to its journal. Done again after
  /// an interruption, it ends the same.
  void move_into(OutputDir& out) const;

 private:
  bool is_whole(const PartFolder& part) const;

  const Plan& plan_;
  HeldFolder parts_;
  Folder partial_;
  std::vector<PartFolder> all_;
  Deal deal_;
  std::vector<const PartFolder*> found_;  // by part
};

}  // namespace mxfp4
