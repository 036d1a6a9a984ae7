// What an interrupted run left beside the place of an output, for `clean` and for messages.
#pragma once

#include <string>
#include <vector>

#include "src/io/stage.h"

namespace mxfp4 {

/// A leftover without a lock counts as in use for this number of seconds after its last change. A run writes more
/// often.
inline constexpr int64_t young_seconds = 10 * 60;

/// Adds to `names` the names of all files in the output `out`, since a run may add a set to that output.
std::vector<std::string> explained_names(const Folder& out, std::vector<std::string> names);

enum class LeftoverKind {
  resumable,      // finished steps of an output
  begun,          // nothing that a run could continue
  replaced,       // the output that a published output has replaced
  predecessor,    // the old output, whose place is empty
  other_version,  // another version's run
  parts,          // parts of an output, for `merge`
  strange         // not made by this tool, or an old output that nobody replaced
};
const char* name_of(LeftoverKind kind);

/// The staging directory of one output.
struct Leftover {
  enum class Use { none, locked, unknown };  // unknown: no lock, and changed lately

  std::string place;  // the output's name
  LeftoverKind kind = LeftoverKind::begun;
  Use use = Use::none;
  std::string name;                      // of the staging directory
  int64_t bytes = 0, jobs = 0, age = 0;  // seconds since the last change
  std::string why;                       // LeftoverKind::strange only
};

/// Lists the leftovers in a folder, by place. It only reads, and takes each lock for a moment. place: only the
/// leftovers of this output; empty: of every output.
std::vector<Leftover> find_leftovers(const Folder& dir, const std::string& place = {});

}  // namespace mxfp4
