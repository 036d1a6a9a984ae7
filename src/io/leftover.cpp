#include "src/io/leftover.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "src/base/error.h"
#include "src/io/parts.h"
#include "src/io/place.h"

namespace mxfp4 {

namespace {

/// The journal, if it belongs to this user alone; else the reason.
struct FoundJournal {
  Fd fd;
  JournalText text;
  std::string why;
};

FoundJournal open_found(const Folder& stage) {
  FoundJournal found;
  const auto s = stage ? stage.look(staged_journal) : std::nullopt;
  if (!s) return found;
  if (!S_ISREG(s->st_mode) || s->st_nlink > 1)
    found.why = "the journal is not a regular file, or has several hard links";
  else if (s->st_uid != ::geteuid())
    found.why = "it belongs to another user";
  if (!found.why.empty()) return found;
  found.fd = stage.open(staged_journal, O_RDONLY | O_NONBLOCK);
  if (found.fd) found.text = read_journal(found.fd);
  if (found.text.strange) found.why = "the journal is not mxfp4-pack's";
  return found;
}

/// Adds the bytes on disk of all files in a staging directory, and updates the time of the last change.
void add_up(const HeldFolder& stage, Leftover& leftover, int64_t& changed) {
  const auto add = [&](const struct stat& s) {
    if (!S_ISDIR(s.st_mode)) leftover.bytes += int64_t(s.st_blocks) * 512;
    changed = std::max(changed, int64_t(s.st_mtime));
  };
  if (const auto s = stage.above.look(stage.name)) add(*s);
  if (!stage || !stage.folder.is_own()) return;
  for (const Entry& entry : entries_below(stage.folder, Unreadable::skip))
    if (entry.name != staged_parts) add(entry.state);  // its mtime is when somebody looked; see is_young()
}

/// Why no run of this tool left the staging directory, or a run cannot remove it; empty if it can.
std::string why_strange(const HeldFolder& stage, const Leftover& l, const FoundJournal& journal, StageState state) {
  if (!journal.why.empty()) return journal.why;
  if (const std::string name = foreign_in_stage(stage.folder); !name.empty())
    return printable(name) + " in it was not made by mxfp4-pack";
  const std::string mounted = mounted_in(stage.folder.path());
  if (!mounted.empty()) return fmt::format("{} is mounted in it", mounted);
  if (state == StageState::left_behind)
    return fmt::format("it has an old output, and {} is not the one that replaced it", printable(l.place));
  const Folder out = stage.above.find(l.place);
  const HeldFolder built(stage.folder, staged_new), parts(stage.folder, staged_parts);
  if (replaced_in(stage.folder, journal.text) != staged_new)
    if (const std::string why = why_not_ours(built, l.place, out, journal.text.head); !why.empty()) return why;
  return why_not_own_parts(parts, explained_names(out, journal.text.head.made));
}

LeftoverKind kind_of(const HeldFolder& stage, const FoundJournal& journal, StageState state) {
  switch (state) {
    case StageState::between:
      return LeftoverKind::predecessor;
    case StageState::other_version:
      return LeftoverKind::other_version;
    case StageState::published:
      return LeftoverKind::replaced;
    case StageState::building:
      return LeftoverKind::resumable;
    default:
      break;
  }
  const bool has_parts = stage.folder.has(staged_parts), is_begun = journal.text.begun || stage.folder.has(staged_new);
  return has_parts && !is_begun ? LeftoverKind::parts : LeftoverKind::begun;
}

Leftover describe(const Folder& above, const std::string& place) {
  const HeldFolder stage(above, stage_beside(place));
  Leftover out;
  out.place = place;
  out.name = stage.name;
  int64_t changed = 0;
  add_up(stage, out, changed);
  out.age = std::max<int64_t>(0, ::time(nullptr) - changed);
  if (const std::string why = why_no_stage(stage); !why.empty()) {  // then nothing in it is looked at
    out.kind = LeftoverKind::strange;
    out.why = "it " + why;
    return out;
  }
  const FoundJournal journal = open_found(stage.folder);
  out.jobs = int64_t(journal.text.records.size());
  const StageState state = state_of(stage.folder, above.find(place), above.has(place), journal.text);
  out.why = why_strange(stage, out, journal, state);
  out.kind = out.why.empty() ? kind_of(stage, journal, state) : LeftoverKind::strange;
  const Lock lock = journal.fd ? take_lock(journal.fd, true) : Lock::none;
  const bool has_no_lock = lock == Lock::none && (journal.fd || (stage && stage.folder.has(staged_new)));
  if (lock == Lock::held)
    out.use = Leftover::Use::locked;
  else if ((has_no_lock && out.age < young_seconds) || are_in_use({stage.folder, staged_parts}))  // parts take no lock
    out.use = Leftover::Use::unknown;
  return out;
}

/// Tries again if a run renames or removes a leftover at the same time.
Leftover describe_again(const Folder& above, const std::string& place) {
  for (int tries = 3;; --tries) try {
      return describe(above, place);
    } catch (const std::exception&) {
      if (tries == 0) throw;
    }
}

}  // namespace

std::vector<std::string> explained_names(const Folder& out, std::vector<std::string> names) {
  if (out && out.is_own())
    for (const auto& [name, state] : snapshot_of(out)) names.push_back(name);
  return names;
}

const char* name_of(LeftoverKind kind) {
  constexpr const char* names[] = {"resumable",     "begun", "replaced", "predecessor",
                                   "other-version", "parts", "strange"};
  return names[size_t(kind)];
}

std::vector<Leftover> find_leftovers(const Folder& dir, const std::string& place) {
  std::vector<std::string> places;
  if (!place.empty()) {  // also in a folder that cannot be listed
    const std::string stage = stage_beside(place);
    if (stage.size() <= NAME_MAX && dir.has(stage)) places.push_back(place);
  } else {
    for (const std::string& name : names_in_folder(dir)) places.push_back(name_behind(name));
    std::erase(places, "");
  }
  std::vector<Leftover> out;
  for (const std::string& name : places) out.push_back(describe_again(dir, name));
  return out;
}

}  // namespace mxfp4
