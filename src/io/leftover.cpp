#include "src/io/leftover.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <set>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/long_text.h"
#include "src/io/parts.h"
#include "src/io/place.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_run_bytes = 64 << 20;
constexpr const char* unknown = "no manifest in it says that mxfp4-pack made it";
constexpr const char* tool = ".mxfp4-pack.";

std::array<std::string, 6> every_name(const HiddenNames& n) {
  return {n.partial, n.aside, n.journal, n.parts, n.removed, n.removed_parts};
}

/// Opens it to know: a file server's client may still remember one that a run removed which was killed meanwhile.
bool has_run_file(const std::string& dir) {
  const std::string path = dir + "/" + run_file;
  const Fd opened(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), path);
  if (!opened && errno == ENOENT) return false;
  return fs::is_regular_file(fs::symlink_status(path));
}

}  // namespace

std::string place_behind(const std::string& dir, const std::string& name) {
  const size_t at = name.rfind(tool);
  if (at == name.npos || at < 2 || name[0] != '.') return {};
  const std::string place = (fs::path(dir) / name.substr(1, at - 1)).string();
  const HiddenNames hidden = hidden_beside(place);
  const std::string path = (fs::path(dir) / name).string();
  const auto all = every_name(hidden);
  return std::find(all.begin(), all.end(), path) != all.end() ? place : "";
}

namespace {

/// The journal, where it is a file of this user's own; else why it is not.
struct FoundJournal {
  Fd fd;
  JournalText text;
  std::string why;
};

FoundJournal open_found(const std::string& path) {
  FoundJournal found;
  struct stat s;
  if (::lstat(path.c_str(), &s) != 0) return found;
  if (!S_ISREG(s.st_mode) || s.st_nlink > 1)
    found.why = "the journal is no file of its own";
  else if (s.st_uid != ::geteuid())
    found.why = "it belongs to another user";
  if (!found.why.empty()) return found;
  found.fd = Fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), path);
  if (found.fd) found.text = read_journal(found.fd);
  if (found.text.strange) found.why = "the journal is not mxfp4-pack's";
  return found;
}

/// Bytes on disk and the last change of a path and all that is in it.
void add_up(const std::string& path, Leftover& leftover, int64_t& changed) {
  const auto add = [&](const fs::path& p) {
    struct stat s;
    if (::lstat(p.c_str(), &s) != 0) return;
    leftover.bytes += int64_t(s.st_blocks) * 512;
    changed = std::max(changed, int64_t(s.st_mtime));
  };
  add(path);
  if (!is_own_folder(path)) return;
  for (const Entry& entry : entries_below(path, Unreadable::skip)) add(entry.path);
}

/// Why there can be no saying what a hidden directory is.
std::string why_no_own_folder(const std::string& dir) {
  if (fs::is_symlink(fs::symlink_status(dir))) return "it is a link";
  if (!fs::is_directory(fs::symlink_status(dir))) return "it is no folder";
  if (!is_own_folder(dir)) return "it belongs to another user";
  const std::string mounted = mounted_in(dir);
  return mounted.empty() ? "" : fmt::format("{} is mounted in it", mounted);
}

JournalHead read_run_file(const std::string& dir) {
  JournalHead head;
  read_run_line(read_text(dir + "/" + run_file, max_run_bytes, run_file), head);
  return head;
}

/// What records say that may be in a hidden directory.
std::vector<std::string> names_in(const std::string& dir, const JournalHead& head, const ListOwn& made) {
  if (has_run_file(dir)) return read_run_file(dir).made;
  const auto names = made ? made(dir) : std::vector<std::string>();
  return names.empty() ? head.made : names;
}

/// Says in a hidden directory itself what may be in it, where nothing does: others' records may go before it does.
void mark_as_removed(const std::string& dir, const JournalHead& head, const ListOwn& made) {
  if (!is_own_folder(dir) || is_empty_folder(dir) || has_run_file(dir)) return;
  write_run_file(dir, {.run = "removed", .made = names_in(dir, head, made)});
}

void move_away(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) fail_errno(from, "cannot move away", errno);
}

/// The same, and what a set is added to: files of `place`.
std::set<std::string> explained(const std::string& place, const std::vector<std::string>& names) {
  std::set<std::string> all(names.begin(), names.end());
  all.insert(run_file);
  if (is_own_folder(place))
    for (const auto& [name, identity] : snapshot_of(place)) all.insert(name);
  return all;
}

std::string why_no_parts(const std::string& parts, const std::string& place, const JournalHead& head) {
  const std::string why = why_no_own_folder(parts);
  if (!why.empty()) return why;
  const auto names = explained(place, head.made);
  return why_not_own_parts(parts, {names.begin(), names.end()});
}

LeftoverKind kind_of(const Leftover& leftover, const HiddenNames& hidden, const JournalText& journal,
                     const ListOwn& made) {
  if (!leftover.why.empty()) return LeftoverKind::strange;
  if (is_there(hidden.aside) && !is_there(leftover.place)) return LeftoverKind::predecessor;
  if (journal.foreign) return LeftoverKind::other_version;
  if (!journal.begun) {
    if (is_there(hidden.parts)) return LeftoverKind::parts;
    if (is_whole_output(hidden.partial, made) || is_whole_output(hidden.aside, made)) return LeftoverKind::output;
    if (is_there(hidden.partial) || is_there(hidden.aside)) return LeftoverKind::orphan;
    return is_there(hidden.removed) || is_there(hidden.removed_parts) ? LeftoverKind::removed : LeftoverKind::begun;
  }
  if (holds(leftover.place, journal.proof)) return LeftoverKind::replaced;
  const bool is_there = is_partial_of(hidden.partial, journal.head, journal.proof);
  return is_there && !journal.records.empty() ? LeftoverKind::resumable : LeftoverKind::begun;
}

Leftover describe(const std::string& place, const ListOwn& made) {
  const HiddenNames hidden = hidden_beside(place);
  Leftover out;
  out.place = place;
  const FoundJournal journal = open_found(hidden.journal);
  int64_t changed = 0;
  for (const std::string& path : every_name(hidden))
    if (is_there(path)) {
      out.paths.push_back(path);
      add_up(path, out, changed);
    }
  out.age = std::max<int64_t>(0, ::time(nullptr) - changed);
  out.jobs = int64_t(journal.text.records.size());
  const Lock lock = journal.fd ? take_lock(journal.fd, true) : Lock::none;
  if (lock == Lock::held) out.use = Leftover::Use::locked;
  const bool says_nothing = lock == Lock::none || is_there(hidden.parts);  // parts take no lock
  if (lock != Lock::held && says_nothing && out.age < young_seconds) out.use = Leftover::Use::unknown;
  out.why = journal.why;
  const bool finished = journal.text.begun && holds(place, journal.text.proof);
  const auto why_strange = [&](const std::string& path) {
    if (!is_there(path)) return std::string();
    if (finished) return why_no_own_folder(path);  // strangers' files are moved then
    if (path == hidden.aside && !is_there(place)) return why_no_output(path, made);
    return why_not_ours(path, place, journal.text.head, made);
  };
  for (const std::string& path : {hidden.partial, hidden.aside, hidden.removed})
    if (out.why.empty()) out.why = why_strange(path);
  for (const std::string& path : {hidden.parts, hidden.removed_parts})
    if (out.why.empty() && is_there(path)) out.why = why_no_parts(path, place, journal.text.head);
  out.kind = kind_of(out, hidden, journal.text, made);
  if (out.kind == LeftoverKind::removed && out.use == Leftover::Use::unknown) out.use = Leftover::Use::none;
  return out;
}

/// Anew where a run has put into place, or removed, what was just looked at.
Leftover describe_again(const std::string& place, const ListOwn& made) {
  for (int tries = 3;; --tries) try {
      return describe(place, made);
    } catch (const std::exception&) {
      if (tries == 0) throw;
    }
}

}  // namespace

bool is_there(const std::string& path) {
  struct stat s;
  return ::lstat(path.c_str(), &s) == 0;
}

HiddenNames hidden_beside(const std::string& place) {
  const fs::path path = place;
  const std::string common = (path.parent_path() / fmt::format(".{}{}", path.filename().string(), tool)).string();
  return {common + "partial", common + "partial.old", common + "journal",
          common + "parts",   common + "removed",     common + "removed-parts"};
}

bool is_own_folder(const std::string& path) {
  struct stat s;
  return ::lstat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == ::geteuid();
}

Proof proof_of(const std::string& dir, const std::string& file) {
  return {file, to_hex(hash_of(open_text(dir + "/" + file, int64_t(4) << 30)))};
}

bool holds(const std::string& dir, const Proof& proof) {
  return !proof.file.empty() && fs::is_regular_file(fs::symlink_status(dir + "/" + proof.file)) &&
         proof_of(dir, proof.file).checksum == proof.checksum;
}

void write_run_file(const std::string& dir, const JournalHead& head) {
  write_text(dir + "/" + run_file, line_of(head));
}

bool holds_run(const std::string& dir, const std::string& run) {
  return has_run_file(dir) && read_run_file(dir).run == run;
}

bool is_partial_of(const std::string& partial, const JournalHead& head, const Proof& proof) {
  return is_own_folder(partial) && (holds_run(partial, head.run) || holds(partial, proof));
}

std::string why_no_output(const std::string& dir, const ListOwn& made) {
  try {
    std::string why = why_no_own_folder(dir);
    if (!why.empty() || is_empty_folder(dir) || (made && !made(dir).empty())) return why;
  } catch (const Error& e) {
    return e.lines.front();
  }
  return unknown;
}

std::string why_not_ours(const std::string& dir, const std::string& place, const JournalHead& head,
                         const ListOwn& made) {
  try {
    std::string why = why_no_own_folder(dir);
    if (!why.empty() || is_empty_folder(dir)) return why;
    const auto names = names_in(dir, head, made);
    if (names.empty() && !has_run_file(dir)) return unknown;
    const std::string foreign = foreign_in(dir, explained(place, names));
    return foreign.empty() ? "" : printable(foreign) + " was not made by mxfp4-pack";
  } catch (const Error& e) {
    return e.lines.front();
  } catch (const fs::filesystem_error&) {
    if (is_there(dir)) throw;
    return {};  // its run has put it into place, or removed it
  }
}

bool is_whole_output(const std::string& dir, const ListOwn& made) {
  if (!made || !is_own_folder(dir) || has_run_file(dir)) return false;
  const auto names = made(dir);
  return !names.empty() &&
         std::all_of(names.begin(), names.end(), [&](const std::string& name) { return is_there(dir + "/" + name); });
}

void remove_partial(const std::string& dir, const std::string& place, const JournalHead& head, const ListOwn& made) {
  if (!is_own_folder(dir)) return;
  mark_as_removed(dir, head, made);
  remove_own(dir, explained(place, names_in(dir, head, made)), run_file);
}

void take_from_run(const std::string& place, const ListOwn& made) {
  const HiddenNames hidden = hidden_beside(place);
  const JournalHead head = open_found(hidden.journal).text.head;
  remove_taken(place, head, made);
  move_away(hidden.partial, hidden.removed);
  move_away(hidden.parts, hidden.removed_parts);
  mark_as_removed(hidden.removed, head, made);  // before what the journal says of it is gone
  if (::unlink(hidden.journal.c_str()) != 0 && errno != ENOENT) fail_errno(hidden.journal, "cannot remove", errno);
}

void remove_taken(const std::string& place, const JournalHead& head, const ListOwn& made) {
  const HiddenNames hidden = hidden_beside(place);
  remove_partial(hidden.removed, place, head, made);
  const auto names = explained(place, head.made);
  remove_parts(hidden.removed_parts, {names.begin(), names.end()});
}

const char* name_of(LeftoverKind kind) {
  constexpr const char* names[] = {"resumable", "begun",  "replaced", "predecessor", "other-version",
                                   "orphan",    "output", "parts",    "removed",     "strange"};
  return names[size_t(kind)];
}

std::vector<Leftover> find_leftovers(const std::string& dir, const ListOwn& made) {
  std::set<std::string> places;
  for (const std::string& name : names_in_folder(dir)) places.insert(place_behind(dir, name));
  places.erase("");
  std::vector<Leftover> out;
  for (const std::string& place : places) out.push_back(describe_again(place, made));
  return out;
}

}  // namespace mxfp4
