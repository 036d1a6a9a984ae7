// The staging directory of an output: one folder of mode 0700 beside the output's place. No other user can enter it, so
// everything in it was put there by this user's runs.
//
//   .OUT.mxfp4-pack/journal   the finished steps. Its lock is the lock of OUT
//                   new/      the output that a run builds. After the exchange of both names: the replaced output
//                   old/      the replaced output, if the file system cannot exchange names
//                   parts/    parts of other processes (parts.h)
//
// A run writes its random number into the journal and into new/.mxfp4-pack-run, the run file. The run file stays in the
// directory when it is renamed to OUT, and is removed after the replaced output. So a later run knows OUT by the
// number, even if another user has exchanged OUT or the staging directory in the meantime.
//
// state          | journal       | new/ has        | old/ has       | OUT            | the next run
// ---------------|---------------|-----------------|----------------|----------------|------------------------------
// begun          | any steps     | no run file, or | -              | old or missing | says which steps are lost,
//                | or none       | there is no step|                |                | removes new/, and begins
// building       | steps         | the run file    | -              | old or missing | continues if its inputs are the
//                | or "finished" |                 |                |                | same; else refuses
// between        | "finished"    | the run file    | the old output | missing        | gives the old output its place,
//                |               |                 |                |                | then as "building"
// published      | "finished"    | the old output  | or the old     | has the run    | removes the old output, parts,
//                |               | or -            | output, or -   | file           | run file, journal
// left behind    | "finished"    | the old output  | or the old     | another one    | refuses: another user or program
//                |               |                 | output         |                | has changed OUT
// other version  | another mark  | files of a run  | -              | old or missing | refuses
#pragma once

#include <string>
#include <vector>

#include "src/io/journal.h"
#include "src/io/replaced.h"

namespace mxfp4 {

/// In a directory that a run builds: the name of OUT, the run's number and the files that the run makes.
inline constexpr const char* run_file = ".mxfp4-pack-run";

/// The names in a staging directory.
inline constexpr const char *staged_journal = "journal", *staged_new = "new", *staged_old = "old",
                            *staged_parts = "parts";

/// The name of the staging directory of the output `name`.
std::string stage_beside(const std::string& name);
/// The output whose staging directory has this name; empty if it is not the name of a staging directory.
std::string name_behind(const std::string& name);

/// Why a name in use cannot be the staging directory; empty if it can, or if the name is free. It must be a folder of
/// this user alone, on the file system of the folder above.
std::string why_no_stage(const HeldFolder& stage);
/// The staging directory of the output `name`; holds nothing if there is none. Throws Error{usage} if why_no_stage() is
/// not empty.
HeldFolder find_stage(const Folder& above, const std::string& name);
/// The same, and creates it if there is none. Throws Error{usage} if foreign_in_stage() is not empty.
HeldFolder make_stage(const Folder& above, const std::string& name);
/// Something in a staging directory that no run puts there; empty if there is nothing.
std::string foreign_in_stage(const Folder& stage);
/// Removes the staging directory if it is empty.
void remove_empty_stage(const Folder& above, const std::string& name);

/// Writes and syncs the run file of the output `place`.
void write_run_file(const Folder& dir, const std::string& place, const JournalHead& head);
/// Whether a directory of this user has the run file with this number.
bool holds_run(const Folder& dir, const std::string& run);
/// Whether a directory of this user has a run file.
bool has_run_file(const Folder& dir);
/// Removes the run file. The directory keeps its mode.
void remove_run_file(const Folder& dir);

enum class StageState { begun, building, between, published, left_behind, other_version };
/// stage: may hold nothing. out: the directory in OUT's place; may hold nothing.
StageState state_of(const Folder& stage, const Folder& out, bool is_out_there, const JournalText& journal);
/// The name in the staging directory that has the replaced output; empty if there is none.
std::string replaced_in(const Folder& stage, const JournalText& journal);

/// Why a run must not remove or continue new/; empty if it may, or if there is no such folder. The folder may hold the
/// run file, the files that the run file lists, and links to files of OUT. If the run file was removed, `head`, the
/// journal's, lists the files.
std::string why_not_ours(const HeldFolder& dir, const std::string& place, const Folder& out, const JournalHead& head);
/// Removes new/. Throws Error{usage} if why_not_ours() is not empty. If it is interrupted, a later call removes the
/// rest.
void remove_new(const HeldFolder& dir, const std::string& place, const Folder& out, const JournalHead& head);

}  // namespace mxfp4
