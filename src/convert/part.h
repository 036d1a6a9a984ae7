// convert --part: what one node writes of an output, and how the parts of all nodes come together.
#pragma once

#include <string>
#include <vector>

#include "src/convert/conversion.h"
#include "src/convert/destination.h"
#include "src/io/parts.h"
#include "src/plan/deal.h"

namespace mxfp4 {

/// Whether a path is a file of so many bytes.
bool has_size(const std::string& path, int64_t bytes);
/// The folder of the parts of OUT.
std::string parts_of(const std::string& out);

/// Carries out options.part: writes its files and its record, and nothing where that was done. Says it, and returns
/// what --json prints.
Json convert_part(const ConvertOptions& options, const Plan& plan, const Input& in, const DeviceChoice& devices);
/// The same where all parts are merged.
Json merged_part(const ConvertOptions& options, const Plan& plan);
/// Whether the tensors of options.part, which are read, are those that an OUT with the same set was made from, and it
/// has files. False while there are parts: then OUT is being replaced, be it by other tensors of other parts.
bool is_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out);

/// The options that a part's record has, as the plan has settled them; and back.
Json command_of(const ConvertOptions& options, const Plan& plan);
ConvertOptions read_command(const Json& command);

/// The finished parts of an output. Throws Error{usage} where one was given something else than this run, or is one of
/// another number of parts.
class Parts {
 public:
  /// count: how many there are to be; 0: what the first found says.
  Parts(const ConvertOptions& options, const Plan& plan, const Input& in, int count = 0);

  bool has(int part) const { return found_[size_t(part)] != nullptr; }
  /// How many there are to be.
  int count() const { return int(found_.size()); }
  /// Those that have something to write and are not there, or not whole.
  std::vector<int> missing() const;
  const Deal& dealt() const { return deal_; }
  /// Moves the parts' files into the partial output and hands what their records say to its journal. Done again after
  /// an interruption, it ends the same.
  void move_into(OutputDir& out) const;
  /// Nothing that is in a finished part is looked at any more.
  void leave_out(Conversion& conversion) const;

 private:
  bool is_whole(const PartFolder& part) const;

  const Plan& plan_;
  std::string partial_;
  std::vector<PartFolder> all_;
  Deal deal_;
  std::vector<const PartFolder*> found_;  // by part
};

}  // namespace mxfp4
