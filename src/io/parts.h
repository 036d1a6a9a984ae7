// Parts of an output, made by several nodes: folders in a hidden folder beside the output's place. Each is written by
// one run under a name that no other has, and appears whole, so that nodes need no lock and never wait for one another.
#pragma once

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
/// 16 hexadecimal ones.
std::string random_digits();
/// A name for the folder of a part: its number, host, process and a random number.
std::string new_part_name(const PartNumber& part);

/// A part's folder. Its record is a journal, in it, of the jobs that were done for its files.
struct PartFolder {
  std::string name;  // among the parts
  PartNumber number;
  Json command;        // what the part was given
  JournalText record;  // `made`: the part's files
};

inline constexpr const char* part_record = "part-record";

/// A part's number, its output's name and its command as text: `run` in the JournalHead of its record.
std::string run_of(const PartNumber& number, const std::string& place, Json command);
/// Why a part is none of the output at `place`; empty: it is one.
std::string why_of_another(const PartFolder& part, const std::string& place);

/// The folder of parts beside an output's place; holds nothing if it is not there.
HeldFolder parts_beside(const Place& place);

/// Throws Error{usage} if the folder of parts is there and not this user's own, or on another file system than what is
/// beside it, or others may write in it.
void check_own_parts(const HeldFolder& parts);

/// All parts in a folder of parts, by number and then by name. Folders without a whole record are left out. Throws as
/// check_own_parts() does.
std::vector<PartFolder> read_parts(const HeldFolder& parts);

/// Whether a name has changed lately, by the clock of its file system.
bool is_young(const Folder& in, const std::string& name);
/// Whether a part that is not finished is young.
bool are_being_written(const HeldFolder& parts);
/// The same, or another process is merging them.
bool are_in_use(const HeldFolder& parts);

/// Removes one finished part; nothing if it is gone.
void remove_part(const HeldFolder& parts, const std::string& name);
/// What in an own folder of parts mxfp4-pack did not make for this output; empty: nothing. made: as remove_parts().
std::string why_not_own_parts(const HeldFolder& parts, const std::vector<std::string>& made);
/// Removes parts, finished or not, and their folder. Throws Error{io} if something cannot be removed, or others put it
/// there. made: what may be in a part whose record cannot be read.
void remove_parts(const HeldFolder& parts, const std::vector<std::string>& made);
/// The same if the output is in its place: what cannot be removed is said, and no error.
void remove_merged_parts(const HeldFolder& parts, const std::vector<std::string>& made);

}  // namespace mxfp4
