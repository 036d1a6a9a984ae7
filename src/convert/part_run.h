// One part of a run that nodes carry out together: the files of a plan that are dealt to it, and a record of them.
#pragma once

#include <string>
#include <vector>

#include "src/io/output.h"
#include "src/io/parts.h"
#include "src/plan/deal.h"

namespace mxfp4 {

/// A record in the journal of an output into which parts were moved. No job has this number.
inline constexpr int64_t parts_taken = -1;

/// Whether a name is a file of this size.
bool has_size(const Folder& folder, const std::string& name, int64_t bytes);

/// The inputs that all parts of a run share.
struct PartRun {
  std::string out;  // as the user calls it
  const Place& place;
  const Plan& plan;  // whose files and jobs are dealt out
  JournalHead head;  // parts belong together if they have the same options and source
  bool add = false, force = false;
};

/// The number of files and jobs of a part, and the bytes of its files.
struct PartSize {
  int files = 0, jobs = 0;
  int64_t bytes = 0;
};
PartSize size_of(const Plan& plan, const Deal& deal, int part);

/// Prints how a part ended. Returns the object that --json prints.
Json report_part(const std::string& out, const PartNumber& part, const PartSize& size, bool unchanged,
                 const std::string& how);

/// The finished parts of a run. Throws Error{usage} if one has other inputs, or belongs to another number of parts.
class Parts {
 public:
  /// count: the number of parts; 0: the number that the first part found has.
  explicit Parts(const PartRun& run, int count = 0);

  bool has(int part) const { return found_[size_t(part)] != nullptr; }
  /// The number of parts.
  int count() const { return int(found_.size()); }
  /// The parts that have something to write and are missing or incomplete.
  std::vector<int> missing() const;
  const Deal& dealt() const { return deal_; }
  /// All parts found, even if a number is there twice or a part is incomplete.
  const std::vector<PartFolder>& all() const { return all_; }
  /// Moves the parts' files into the partial output and adds their records to its journal. Repeated after an
  /// interruption, it gives the same result.
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
