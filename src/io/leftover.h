// What an interrupted run leaves beside the place of an output: the partial output, its journal, or the old output.
#pragma once

#include <string>
#include <vector>

#include "src/io/journal.h"
#include "src/io/replaced.h"

namespace mxfp4 {

/// Marks the partial directory as a run's own; gone when it is finished.
inline constexpr const char* run_file = ".mxfp4-pack-run";

/// The hidden names in the folder above, beside an output's own name.
struct HiddenNames {
  std::string partial;  // what is built, and after a swap what was replaced
  std::string aside;    // if two directories cannot be swapped: what is replaced, between two renames
  std::string journal;
  std::string parts;  // see parts.h
};
HiddenNames hidden_beside(const std::string& name);
std::string longest_name_beside(const std::string& name);

/// The output's name that a hidden name belongs to; empty: it is not such a name.
std::string name_behind(const std::string& name);
/// Seconds since the last change below which a leftover counts as in use where no lock tells: runs write more often.
inline constexpr int64_t young_seconds = 10 * 60;

/// What a journal keeps of a finished directory: one of its files.
Proof proof_of(const Folder& dir, const std::string& file);
/// Whether `dir` is this user's, and what a journal with this proof was finished with. false for a folder that holds
/// nothing.
bool holds(const Folder& dir, const Proof& proof);
bool holds_run(const Folder& dir, const std::string& run);
/// Whether `partial` is the directory that the journal is about.
bool is_partial_of(const Folder& partial, const JournalHead& head, const Proof& proof);
/// The journal's head. Its list of files is empty unless `dir` is the directory that the journal describes: somebody
/// may have moved another directory to that name.
JournalHead head_for(const Folder& dir, JournalHead head, const Proof& proof);
/// Marks a partial directory, beside `place`, on disk.
void write_run_file(const Folder& dir, const std::string& place, const JournalHead& head);
/// Why a hidden name beside `place` is not this tool's to remove or to go on with; empty: it is, or is not there. It
/// may hold what its run file, or else its manifest or the journal's head, says that the run makes, and links to what
/// is in `place`.
std::string why_not_ours(const HeldFolder& dir, const std::string& place, const JournalHead& head, const ListOwn& made);
/// Why a name is no old output that can be put back; empty: it is one.
std::string why_no_output(const HeldFolder& dir, const ListOwn& made);
/// These names, and those of all files at `place`, to which a set may be added.
std::vector<std::string> explained_names(const Folder& above, const std::string& place, std::vector<std::string> names);
/// Whether a folder of this user's own holds every file that its manifest lists, and no run's mark.
bool is_whole_output(const Folder& dir, const ListOwn& made);
/// Removes a directory. Throws Error{usage} if why_not_ours() is not empty. If it is interrupted, a later call
/// recognises the rest.
void remove_partial(const HeldFolder& dir, const std::string& place, const JournalHead& head, const ListOwn& made);

enum class LeftoverKind {
  resumable,      // a partial output with finished jobs
  begun,          // nothing that a run could go on with
  replaced,       // the output is in its place; this is what it replaced
  predecessor,    // the old output, whose place is empty
  other_version,  // another version's journal and partial output
  orphan,         // without a journal
  output,         // the same, and whole
  parts,          // parts of an output, which merge puts together
  strange         // not this tool's
};
const char* name_of(LeftoverKind kind);

/// All that lies beside one output's place.
struct Leftover {
  enum class Use { none, locked, unknown };  // unknown: there is no lock to ask, and it is young

  std::string place;  // its name
  LeftoverKind kind = LeftoverKind::orphan;
  Use use = Use::none;
  std::vector<std::string> names;
  int64_t bytes = 0, jobs = 0, age = 0;  // seconds since the last change
  std::string why;                       // LeftoverKind::strange only
};

/// What runs left in a folder, by place. It only reads, and asks for each lock for a moment. place: of this output
/// alone; empty: of all.
std::vector<Leftover> find_leftovers(const Folder& dir, const ListOwn& made, const std::string& place = {});

}  // namespace mxfp4
