// The leftovers of an interrupted run beside the place of an output: the staging directory, its journal, or the old
// output.
#pragma once

#include <string>
#include <vector>

#include "src/io/journal.h"
#include "src/io/replaced.h"

namespace mxfp4 {

/// Marks the staging directory of a run. It is removed when the directory is complete.
inline constexpr const char* run_file = ".mxfp4-pack-run";

/// The hidden names in the folder above, beside an output's own name.
struct HiddenNames {
  std::string partial;  // the staging directory; after a swap, the replaced output
  std::string aside;    // the replaced output between two renames, if the file system cannot swap
  std::string journal;
  std::string parts;  // see parts.h
};
HiddenNames hidden_beside(const std::string& name);
std::string longest_name_beside(const std::string& name);

/// The output whose hidden name this is; empty if `name` is not a hidden name.
std::string name_behind(const std::string& name);
/// A leftover without a lock counts as in use for this number of seconds after its last change. A run writes more
/// often.
inline constexpr int64_t young_seconds = 10 * 60;

/// Identifies a finished directory, for its journal, by one of its files.
Proof proof_of(const Folder& dir, const std::string& file);
/// Whether `dir` belongs to this user and is the directory that the proof identifies. False if the folder could not be
/// opened.
bool holds(const Folder& dir, const Proof& proof);
bool holds_run(const Folder& dir, const std::string& run);
/// Whether `partial` is the directory that the journal describes.
bool is_partial_of(const Folder& partial, const JournalHead& head, const Proof& proof);
/// The journal's head. Its list of files is empty unless `dir` is the directory that the journal describes: somebody
/// may have moved another directory to that name.
JournalHead head_for(const Folder& dir, JournalHead head, const Proof& proof);
/// Writes and syncs the run file of a staging directory beside `place`.
void write_run_file(const Folder& dir, const std::string& place, const JournalHead& head);
/// Why this tool must not remove or continue a hidden name beside `place`; empty if it may, or if the name does not
/// exist. The directory may hold files that its run file lists, and links to files of the output at `place`. Without a
/// run file, its manifest or the journal's head lists the files.
std::string why_not_ours(const HeldFolder& dir, const std::string& place, const JournalHead& head, const ListOwn& made);
/// Why a name is not an old output that can take its place again; empty if it is.
std::string why_no_output(const HeldFolder& dir, const ListOwn& made);
/// Adds to `names` the names of all files at `place`, since a run may add a set to that output.
std::vector<std::string> explained_names(const Folder& above, const std::string& place, std::vector<std::string> names);
/// Whether a folder belongs to this user, holds every file that its manifest lists, and has no run file.
bool is_whole_output(const Folder& dir, const ListOwn& made);
/// Removes a directory. Throws Error{usage} if why_not_ours() is not empty. If it is interrupted, a later call
/// recognises the rest.
void remove_partial(const HeldFolder& dir, const std::string& place, const JournalHead& head, const ListOwn& made);

enum class LeftoverKind {
  resumable,      // a staging directory with finished jobs
  begun,          // nothing that a run could continue
  replaced,       // the output that a published output has replaced
  predecessor,    // the old output, whose place is empty
  other_version,  // another version's journal and staging directory
  orphan,         // without a journal
  output,         // a complete output without a journal
  parts,          // parts of an output, for `merge`
  strange         // not made by this tool
};
const char* name_of(LeftoverKind kind);

/// The leftovers beside one output's place.
struct Leftover {
  enum class Use { none, locked, unknown };  // unknown: no lock, and changed lately

  std::string place;  // its name
  LeftoverKind kind = LeftoverKind::orphan;
  Use use = Use::none;
  std::vector<std::string> names;
  int64_t bytes = 0, jobs = 0, age = 0;  // seconds since the last change
  std::string why;                       // LeftoverKind::strange only
};

/// Lists the leftovers in a folder, by place. It only reads, and takes each lock for a moment. place: only the
/// leftovers of this output; empty: of every output.
std::vector<Leftover> find_leftovers(const Folder& dir, const ListOwn& made, const std::string& place = {});

}  // namespace mxfp4
