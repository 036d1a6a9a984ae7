#include "src/io/leftover.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>
#include <filesystem>
#include <set>

#include "src/base/error.h"
#include "src/base/long_text.h"
#include "src/io/parts.h"
#include "src/io/place.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_run_bytes = 64 << 20;
constexpr int64_t max_proof_bytes = int64_t(4) << 30;
constexpr const char* unmarked = "neither a journal nor a file in it says that a run to this place made it";
constexpr const char* unknown = "no manifest in it says that mxfp4-pack made it";
constexpr const char* tool = ".mxfp4-pack.";

std::array<std::string, 4> every_name(const HiddenNames& n) { return {n.partial, n.aside, n.journal, n.parts}; }

bool is_own_folder(const Folder& folder) { return folder && folder.is_own(); }

/// Whether a folder has a run file that only this user can have written, and has the mode of a staging directory. The
/// file is opened to be sure: the client of a file server may remember a file that a killed run has removed.
bool has_run_file(const Folder& dir) {
  const Fd opened = dir.open(run_file, O_RDONLY | O_NONBLOCK);
  if (!opened) return errno != ENOENT && dir.has_file(run_file);
  const struct stat s = opened.stat();
  return S_ISREG(s.st_mode) && s.st_uid == ::geteuid() && !(s.st_mode & 022) && dir.is_private();
}

/// The journal, if it belongs to this user alone; else the reason.
struct FoundJournal {
  Fd fd;
  JournalText text;
  std::string why;
};

FoundJournal open_found(const Folder& above, const std::string& name) {
  FoundJournal found;
  const auto s = above.look(name);
  if (!s) return found;
  if (!S_ISREG(s->st_mode) || s->st_nlink > 1)
    found.why = "the journal is not a regular file, or has several hard links";
  else if (s->st_uid != ::geteuid())
    found.why = "it belongs to another user";
  else if (s->st_mode & 022)
    found.why = "others may write to the journal";
  if (!found.why.empty()) return found;
  found.fd = above.open(name, O_RDONLY | O_NONBLOCK);
  if (found.fd) found.text = read_journal(found.fd);
  if (found.text.strange) found.why = "the journal is not mxfp4-pack's";
  return found;
}

/// Adds the bytes on disk of a name and all files below, and updates the time of the last change.
void add_up(const Folder& above, const std::string& name, Leftover& leftover, int64_t& changed) {
  const auto add = [&](const struct stat& s) {
    leftover.bytes += int64_t(s.st_blocks) * 512;
    changed = std::max(changed, int64_t(s.st_mtime));
  };
  if (const auto s = above.look(name)) add(*s);
  const Folder folder = above.find(name);
  if (!is_own_folder(folder)) return;
  for (const Entry& entry : entries_below(folder, Unreadable::skip)) add(entry.state);
}

/// Why a hidden directory cannot be judged.
std::string why_no_own_folder(const HeldFolder& dir) {
  const auto s = dir.above.look(dir.name);
  if (s && S_ISLNK(s->st_mode)) return "it is a link";
  if (!dir) return "it is not a folder";
  if (!dir.folder.is_own()) return "it belongs to another user";
  const std::string mounted = mounted_in(dir.folder.path());
  return mounted.empty() ? "" : fmt::format("{} is mounted in it", mounted);
}

[[noreturn]] void fail_strange(const HeldFolder& dir, const std::string& why) {
  fail(ErrorKind::usage, "{}: {}; move it away first", dir.above.path(dir.name), why);
}

/// A run file's contents: the place that the directory is for, and its run.
struct Mark {
  std::string place;
  JournalHead head;
};

Mark read_run_file(const Folder& dir) {
  const std::string text = read_text(dir, run_file, max_run_bytes);
  const size_t end = text.find('\n');
  Mark mark;
  if (end == text.npos) return mark;  // cut short: the directory has no other file yet
  mark.place = text.substr(0, end);
  read_run_line(text.substr(end + 1), mark.head);
  return mark;
}

/// The names that records allow in a hidden directory. A manifest alone proves nothing: somebody may have moved another
/// output to this name.
std::vector<std::string> names_in(const Folder& dir, const JournalHead& head, const ListOwn& made) {
  if (has_run_file(dir)) return read_run_file(dir).head.made;
  if (head.made.empty()) return {};  // no journal knows the directory: it may be any output of this user
  const auto names = made ? made(dir) : std::vector<std::string>();
  return names.empty() ? head.made : names;
}

/// Writes a run file into a hidden directory that has none. The journal and the manifest may be removed before the
/// directory is.
void mark_as_removed(const Folder& dir, const std::string& place, const JournalHead& head, const ListOwn& made) {
  if (!is_own_folder(dir) || names_in_folder(dir).empty() || has_run_file(dir)) return;
  write_run_file(dir, place, {.run = "removed", .made = names_in(dir, head, made)});
}

/// Adds files that OUT has, since a run that adds a set links them into its staging directory.
std::set<std::string> known_in(const HeldFolder& dir, const std::string& place, const std::vector<std::string>& names) {
  std::set<std::string> all(names.begin(), names.end());
  all.insert(run_file);
  const Folder out = dir.above.find(place);
  if (!is_own_folder(out)) return all;
  for (const auto& [name, identity] : snapshot_of(dir.folder))
    if (!all.contains(name) && is_in_both(dir.folder, out, name)) all.insert(name);
  return all;
}

std::string why_no_parts(const HeldFolder& parts, const std::string& place, const JournalHead& head) {
  const std::string why = why_no_own_folder(parts);
  if (!why.empty()) return why;
  return why_not_own_parts(parts, explained_names(parts.above, place, head.made));
}

LeftoverKind kind_of(const Folder& above, const Leftover& leftover, const HiddenNames& hidden,
                     const JournalText& journal, const ListOwn& made) {
  if (!leftover.why.empty()) return LeftoverKind::strange;
  if (above.has(hidden.aside) && !above.has(leftover.place)) return LeftoverKind::predecessor;
  if (journal.foreign) return LeftoverKind::other_version;
  const Folder partial = above.find(hidden.partial);
  const bool is_finished = journal.begun && holds(above.find(leftover.place), journal.proof);
  const auto is_unknown = [&](const Folder& dir) { return is_whole_output(dir, made) && !holds(dir, journal.proof); };
  if (!is_finished && (is_unknown(partial) || is_unknown(above.find(hidden.aside)))) return LeftoverKind::output;
  if (!journal.begun) {
    if (above.has(hidden.parts)) return LeftoverKind::parts;
    return above.has(hidden.partial) || above.has(hidden.aside) ? LeftoverKind::orphan : LeftoverKind::begun;
  }
  if (is_finished) return LeftoverKind::replaced;
  const bool is_there = is_partial_of(partial, journal.head, journal.proof);
  return is_there && !journal.records.empty() ? LeftoverKind::resumable : LeftoverKind::begun;
}

/// Why this tool did not make one of the hidden names; empty if it made all.
std::string why_strange(const Folder& above, const std::string& place, const JournalText& journal,
                        const ListOwn& made) {
  const HiddenNames hidden = hidden_beside(place);
  const bool finished = journal.begun && holds(above.find(place), journal.proof);
  for (const std::string& name : {hidden.partial, hidden.aside}) {
    if (!above.has(name)) continue;
    const HeldFolder dir(above, name);
    const bool is_predecessor = name == hidden.aside && !above.has(place);
    const std::string why = finished ? why_no_own_folder(dir)  // the removal then keeps other users' files
                            : is_predecessor
                                ? why_no_output(dir, made)
                                : why_not_ours(dir, place, head_for(dir.folder, journal.head, journal.proof), made);
    if (!why.empty() && !(why == unmarked && is_whole_output(dir.folder, made)))
      return why;  // see LeftoverKind::output
  }
  return above.has(hidden.parts) ? why_no_parts(HeldFolder(above, hidden.parts), place, journal.head) : "";
}

Leftover describe(const Folder& above, const std::string& place, const ListOwn& made) {
  const HiddenNames hidden = hidden_beside(place);
  Leftover out;
  out.place = place;
  const FoundJournal journal = open_found(above, hidden.journal);
  int64_t changed = 0;
  for (const std::string& name : every_name(hidden))
    if (above.has(name)) {
      out.names.push_back(name);
      add_up(above, name, out, changed);
    }
  out.age = std::max<int64_t>(0, ::time(nullptr) - changed);
  out.jobs = int64_t(journal.text.records.size());
  const Lock lock = journal.fd ? take_lock(journal.fd, true) : Lock::none;
  if (lock == Lock::held) out.use = Leftover::Use::locked;
  const bool has_no_lock = lock == Lock::none && (journal.fd || above.has(hidden.partial) || above.has(hidden.aside));
  const bool may_be_going_on = has_no_lock && out.age < young_seconds;
  if (lock != Lock::held && (may_be_going_on || are_in_use(HeldFolder(above, hidden.parts))))  // parts take no lock
    out.use = Leftover::Use::unknown;
  out.why = journal.why.empty() ? why_strange(above, place, journal.text, made) : journal.why;
  out.kind = kind_of(above, out, hidden, journal.text, made);
  return out;
}

/// Tries again if a run renames or removes a leftover at the same time.
Leftover describe_again(const Folder& above, const std::string& place, const ListOwn& made) {
  for (int tries = 3;; --tries) try {
      return describe(above, place, made);
    } catch (const std::exception&) {
      if (tries == 0) throw;
    }
}

}  // namespace

HiddenNames hidden_beside(const std::string& name) {
  const std::string common = fmt::format(".{}{}", name, tool);
  return {common + "partial", common + "partial.old", common + "journal", common + "parts"};
}

std::string longest_name_beside(const std::string& name) { return hidden_beside(name).aside; }

std::string name_behind(const std::string& name) {
  const size_t at = name.rfind(tool);
  if (at == name.npos || at < 2 || name[0] != '.') return {};
  const std::string place = name.substr(1, at - 1);
  const auto all = every_name(hidden_beside(place));
  return std::find(all.begin(), all.end(), name) != all.end() ? place : "";
}

Proof proof_of(const Folder& dir, const std::string& file) {
  return {file, to_hex(hash_of(open_text(dir, file, max_proof_bytes)))};
}

bool holds(const Folder& dir, const Proof& proof) {
  if (!is_own_folder(dir) || proof.file.empty()) return false;
  const auto s = dir.look(proof.file);
  return s && S_ISREG(s->st_mode) && s->st_uid == ::geteuid() && proof_of(dir, proof.file).checksum == proof.checksum;
}

JournalHead head_for(const Folder& dir, JournalHead head, const Proof& proof) {
  if (!is_partial_of(dir, head, proof)) head.made.clear();
  return head;
}

void write_run_file(const Folder& dir, const std::string& place, const JournalHead& head) {
  write_text(dir, run_file, printable(place) + "\n" + line_of(head));
  dir.sync();
}

bool holds_run(const Folder& dir, const std::string& run) {
  return dir && has_run_file(dir) && read_run_file(dir).head.run == run;
}

bool is_partial_of(const Folder& partial, const JournalHead& head, const Proof& proof) {
  return is_own_folder(partial) && (holds_run(partial, head.run) || holds(partial, proof));
}

std::string why_no_output(const HeldFolder& dir, const ListOwn& made) {
  try {
    std::string why = why_no_own_folder(dir);
    if (!why.empty() || names_in_folder(dir.folder).empty() || (made && !made(dir.folder).empty())) return why;
  } catch (const Error& e) {
    return e.lines.front();
  }
  return unknown;
}

std::string why_not_ours(const HeldFolder& dir, const std::string& place, const JournalHead& head,
                         const ListOwn& made) {
  if (!dir.above.has(dir.name)) return {};
  try {
    std::string why = why_no_own_folder(dir);
    if (!why.empty() || names_in_folder(dir.folder).empty()) return why;
    if (has_run_file(dir.folder))
      if (const std::string of = read_run_file(dir.folder).place; !of.empty() && of != printable(place))
        return fmt::format("it belongs to a run that writes {}", printable(of));
    const auto names = names_in(dir.folder, head, made);
    if (names.empty() && !has_run_file(dir.folder)) return made && !made(dir.folder).empty() ? unmarked : unknown;
    const std::string foreign = foreign_in(dir.folder, known_in(dir, place, names));
    return foreign.empty() ? "" : printable(foreign) + " was not made by mxfp4-pack, or was changed since";
  } catch (const Error& e) {
    return e.lines.front();
  } catch (const fs::filesystem_error&) {
    if (dir.is_in_place()) throw;
    return {};  // its run has published or removed it
  }
}

std::vector<std::string> explained_names(const Folder& above, const std::string& place,
                                         std::vector<std::string> names) {
  const Folder out = above.find(place);
  if (is_own_folder(out))
    for (const auto& [name, state] : snapshot_of(out)) names.push_back(name);
  return names;
}

bool is_whole_output(const Folder& dir, const ListOwn& made) {
  if (!made || !is_own_folder(dir) || has_run_file(dir)) return false;
  const auto names = made(dir);
  return !names.empty() && std::all_of(names.begin(), names.end(), [&](const std::string& n) { return dir.has(n); });
}

void remove_partial(const HeldFolder& dir, const std::string& place, const JournalHead& head, const ListOwn& made) {
  if (!is_own_folder(dir.folder)) return;
  if (const std::string why = why_not_ours(dir, place, head, made); !why.empty()) fail_strange(dir, why);
  mark_as_removed(dir.folder, place, head, made);
  remove_own(dir, known_in(dir, place, names_in(dir.folder, head, made)), run_file);
}

const char* name_of(LeftoverKind kind) {
  constexpr const char* names[] = {"resumable", "begun",  "replaced", "predecessor", "other-version",
                                   "orphan",    "output", "parts",    "strange"};
  return names[size_t(kind)];
}

std::vector<Leftover> find_leftovers(const Folder& dir, const ListOwn& made, const std::string& place) {
  std::set<std::string> places;
  if (!place.empty()) {  // also in a folder that cannot be listed
    const auto hidden = every_name(hidden_beside(place));
    if (longest_name_beside(place).size() <= NAME_MAX &&
        std::any_of(hidden.begin(), hidden.end(), [&](const std::string& name) { return dir.has(name); }))
      places.insert(place);
  } else {
    for (const std::string& name : names_in_folder(dir)) places.insert(name_behind(name));
    places.erase("");
  }
  std::vector<Leftover> out;
  for (const std::string& place : places) out.push_back(describe_again(dir, place, made));
  return out;
}

}  // namespace mxfp4
