// Parts of an output, made by several nodes: folders in the output's staging directory (stage.h). One run writes each
// part under a unique name, and the part appears complete. So nodes need no locks and never wait for one another.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/io/journal.h"
#include "src/io/place.h"
#include "src/io/replaced.h"

namespace mxfp4 {

/// One of `count` parts, counted from 0.
struct PartNumber {
  int index = 0, count = 1;
  friend bool operator==(const PartNumber&, const PartNumber&) = default;
};

/// "HOST.PROCESS" of this process.
std::string process_name();
/// Whether "HOST.PROCESS" runs; none if the host is another one.
std::optional<bool> runs(const std::string& process);
/// 16 random hexadecimal digits.
std::string random_digits();
/// A name for the folder of a part: its number, host, process and a random number.
std::string new_part_name(const PartNumber& part);

/// A part's folder. Its record is a journal, in the folder, of the finished jobs for its files.
struct PartFolder {
  std::string name;  // among the parts
  PartNumber number;
  Json command;        // the inputs of the part
  JournalText record;  // `made`: the part's files
};

inline constexpr const char* part_record = "part-record";

/// A part's number, its output's name and its command as text: `run` in the JournalHead of its record.
std::string run_of(const PartNumber& number, const std::string& place, Json command);
/// Why a part does not belong to the output at `place`; empty if it does.
std::string why_of_another(const PartFolder& part, const std::string& place);

/// The folder of parts of the output at a place; holds nothing if it is not there. Throws as find_stage() does.
HeldFolder parts_beside(const Place& place);

/// Throws Error{usage} if the folder of parts exists, but is no folder of this user.
void check_own_parts(const HeldFolder& parts);

/// All parts in a folder of parts, by number and then by name. Folders without a whole record are left out. Throws as
/// check_own_parts() does.
std::vector<PartFolder> read_parts(const HeldFolder& parts);

/// Whether name `in`/`name` has changed in the last young_seconds, by the clock of its file system. Reading this clock
/// sets the mtime of folder `clock`, so nobody may judge by that.
bool is_young(const Folder& clock, const Folder& in, const std::string& name);
/// Whether an unfinished part is young.
bool are_being_written(const HeldFolder& parts);
/// Whether an unfinished part is young, or another process is merging the parts.
bool are_in_use(const HeldFolder& parts);

/// Removes one finished part; does nothing if it is gone.
void remove_part(const HeldFolder& parts, const std::string& name);
/// The first entry of a folder of parts that mxfp4-pack did not make for this output, and why; empty if there is none.
/// made: as for remove_parts().
std::string why_not_own_parts(const HeldFolder& parts, const std::vector<std::string>& made);
/// Removes all parts, finished or not, and their folder. Throws Error{io} if something cannot be removed, or if others
/// put it there. made: the files that a part without a readable record may have.
void remove_parts(const HeldFolder& parts, const std::vector<std::string>& made);
/// As remove_parts(), for a published output: an error is only a warning.
void remove_merged_parts(const HeldFolder& parts, const std::vector<std::string>& made);

}  // namespace mxfp4
