#include "src/io/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/io/inputs.h"
#include "src/io/leftover.h"
#include "src/io/merge_claim.h"
#include "src/io/parts.h"
#include "src/io/permitted.h"
#include "src/io/source_folder.h"
#include "src/io/swap.h"

namespace mxfp4 {

OutputDir::OutputDir(Place place, bool is_part, const std::string& out, ListOwn made)
    : place_(std::move(place)), name_(out), made_(std::move(made)), is_part_(is_part) {
  check_not_mounted(out, place_);
  lock();
  if (!journal_->is_locked() && !is_part_)
    warn(fmt::format("{}: this file system has no locks; let no other run write here", out));
  if (state() == StageState::between) put_back();
  const Folder now = place_.folder();
  finished_ = journal_->text().finished && holds_run(now, journal_->head().run);
  if (finished_)
    finish_earlier(now);
  else if (has_run_file(now))
    remove_run_file(now);  // its staging directory is gone
}

OutputDir::OutputDir(Place place, const std::string& out, ListOwn made)
    : OutputDir(std::move(place), false, out, std::move(made)) {}

OutputDir OutputDir::for_part(const Place& place, const std::string& part) {
  for (;;) {
    const HeldFolder stage = make_stage(place.above, place.name);
    if (const int error = stage.folder.try_make(staged_parts); error != 0 && stage.is_still_there())
      fail_errno(stage.folder.path(staged_parts), "cannot create", error);
    try {
      HeldFolder parts(stage.folder, staged_parts);
      check_own_parts(parts);
      if (parts) return OutputDir({std::move(parts.folder), part}, true, place.path(), nullptr);
    } catch (const Error&) {
      if (stage.is_still_there() && stage.folder.has(staged_parts)) throw;
    }  // else another process failed, and removed its part and the folders
  }
}

/// Opens the staging directory and its journal, again if another run has just ended and removed them. A file server's
/// client may remember the removed ones, or another run may make them again meanwhile.
void OutputDir::lock() {
  for (int tries_left = 20;; journal_.reset()) {
    stage_.emplace(make_stage(place_.above, place_.name));
    try {
      journal_.emplace(stage_->folder, staged_journal, name_);
      if (stage_->is_in_place()) break;
    } catch (const Error& e) {
      if (stage_->is_still_there() && (e.kind != ErrorKind::io || --tries_left == 0)) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  if (!journal_->begun() && !journal_->text().foreign)
    remove_at_signal({stage_->folder.fd(), staged_journal}, {place_.above.fd(), stage_->name});
}

StageState OutputDir::state() const {
  return state_of(stage_->folder, place_.folder(), place_.above.has(place_.name), journal_->text());
}

bool OutputDir::is_in_place() const { return stage_->is_in_place() && journal_->is_in_place(); }

/// Gives the old output its place again.
void OutputDir::put_back() {
  const std::string old = replaced_in(stage_->folder, journal_->text());
  if (old == staged_old) check_is_ours(staged(staged_new));  // else another output's staging directory was moved here
  rename_to({stage_->folder, old}, {place_.above, place_.name});
}

/// Removes the leftovers of a run that was interrupted after it published the output `now`. A command that does not
/// know the files of the replaced output leaves that output to one that does.
void OutputDir::finish_earlier(const Folder& now) {
  if (const std::string name = replaced_in(stage_->folder, journal_->text()); !name.empty()) {
    const HeldFolder old = staged(name);
    const auto is_known = [&] { return snapshot_of(old.folder).empty() || (made_ && !made_(old.folder).empty()); };
    if (is_known()) remove_replaced(old, now, [](const std::string&) { return false; });
  }
  remove_merged_parts(staged(staged_parts), journal_->head().made);
  if (!is_left()) remove_run_file(now);
}

/// Whether the staging directory still has a replaced output or parts.
bool OutputDir::is_left() const {
  return !replaced_in(stage_->folder, journal_->text()).empty() || stage_->folder.has(staged_parts);
}

void OutputDir::clean(Place place, ListOwn made) {
  const std::string path = place.path();
  const MergeClaim claim(place, path);  // else it would remove parts that a process has just begun to merge
  OutputDir out(std::move(place), false, path, std::move(made));
  if (!out.finished_) {
    out.remove_leftover();
    remove_parts(out.staged(staged_parts), explained_names(out.place_.folder(), out.journal_->head().made));
    out.end_journal();
  } else {  // the constructor removed the replaced output
    remove_parts(out.staged(staged_parts), out.journal_->head().made);
  }
}

void OutputDir::open(const OpenOptions& start) {
  look_at_parts(start);
  keep_ = built_ = take_over(start);
  if (!committed_ && is_taken(place_.above, place_.name)) {
    if (start.existing == Existing::refuse || !made_) fail_existing();
    old_.emplace(place_.above, place_.name);  // the run replaces this directory and no other
    before_ = snapshot_of(old_->folder);      // before the check: later files are not this tool's
    if (start.existing != Existing::extend) check_replaceable(name_, old_->folder, made_);
  }
  if (!committed_)  // leftovers are continued or removed, so their space counts as free
    check_space(place_.above, start.bytes, {stage_->name + "/" + staged_new, stage_->name + "/" + staged_parts});
  replace_ = !committed_ && place_.above.has(place_.name);
  if (replace_) look_at_predecessor();
  source_folder_ = start.source_folder;
  if (source_folder_)
    privacy_ = Privacy(source_folder_->permitted());
  else if (replace_)
    privacy_ = Privacy(permitted_in(old_->folder));
  deferred_.emplace();
  if (keep_) make_new_writable();
  if (start.discards_other && !start.takes_parts) remove_parts(staged(staged_parts), start.made);
  if (!committed_ && !keep_) begin(start);
  if (replace_) check_movable({place_.above, place_.name}, {stage_->folder, staged_new}, name_);
}

void OutputDir::fail_existing() const {
  const Folder there = made_ ? place_.folder() : Folder();
  const bool is_made = there && !made_(there).empty();
  fail(ErrorKind::usage, "{}: exists; choose another place{}", name_, is_made ? ", or replace it with --force" : "");
}

/// A run that was killed late had given the directory and its folders the modes of OUT.
void OutputDir::make_new_writable() const {
  new_->folder.make_private();
  new_->folder.make_writable();
  for (const Entry& entry : entries_below(new_->folder))
    if (entry.is_folder()) new_->folder.find(entry.name).make_writable();
}

void OutputDir::look_at_parts(const OpenOptions& start) const {
  const HeldFolder parts = staged(staged_parts);
  const bool any = !read_parts(parts).empty();
  if (!start.even_in_use && are_being_written(parts))
    fail(ErrorKind::usage,
         "{}: other nodes may be writing parts of it; wait until they end, or until 10 minutes after the last change",
         name_);
  if (any && !start.takes_parts && !start.discards_other)
    fail(ErrorKind::usage, "{}: parts of it exist; join them with merge, or discard them: {}", name_, how_to_clean());
}

std::string OutputDir::how_to_clean() const {
  return fmt::format("mxfp4-pack clean {} --remove", shell_word(place_.path()));
}

void OutputDir::look_at_predecessor() {
  if (!old_) {
    old_.emplace(place_.above, place_.name);
    before_ = snapshot_of(old_->folder);
  }
  if (!old_->is_in_place()) fail_changed();
  const struct stat s = old_->folder.stat();
  if (s.st_uid != ::geteuid() && ::geteuid() != 0)
    fail(ErrorKind::usage, "{}: belongs to another user and cannot be replaced; choose another place", name_);
  keeps_mode_ = old_->folder.is_own();
}

/// Whether this run continues an interrupted run. Throws Error{usage} if that run had other inputs and has a finished
/// step.
bool OutputDir::take_over(const OpenOptions& start) {
  const JournalHead& head = journal_->head();
  const bool same =
      start.options != OpenOptions::never_continued && head.options == start.options && head.source == start.source;
  if (finished_) {
    committed_ = same;
    return false;
  }
  const StageState found = state();
  if (found == StageState::other_version && !start.discards_other)
    fail(ErrorKind::usage, "{}: an interrupted run of another version exists; discard it: {}", name_, how_to_clean());
  if (found != StageState::building) {
    say_why_begun();
    return false;
  }
  const std::string changes = same ? "" : changed_inputs(head.inputs, start.inputs);
  const std::string which = changes.empty() ? "" : fmt::format(" ({})", changes);
  if (!same && start.discards_other) {
    note(fmt::format("{}: {} of an interrupted run with other inputs: discarded{}", name_,
                     counted(int64_t(journal_->records().size()), "finished step"), which));
    return false;
  }
  if (!same)
    fail(ErrorKind::usage, "{}: an interrupted run {}, or discard it: {}", name_,
         head.source != start.source
             ? fmt::format("of another source, or of this one before it changed, exists{}; choose another place", which)
             : fmt::format("with other options, or of another version, exists{}; run that command again", which),
         how_to_clean());
  new_.emplace(stage_->folder, staged_new);
  check_is_ours(*new_);
  if (journal_->text().damaged)
    note(fmt::format("{}: is damaged; the steps that it listed after {} are repeated",
                     stage_->folder.path(staged_journal),
                     counted(int64_t(journal_->records().size()), "finished step")));
  return true;
}

/// Says what another run left that cannot be continued.
void OutputDir::say_why_begun() const {
  const auto steps = int64_t(journal_->records().size());
  const Folder built = stage_->folder.find(staged_new);
  if (journal_->text().foreign)
    note(fmt::format("{}: an interrupted run of another version: discarded", name_));
  else if (steps > 0)
    note(fmt::format(
        "{}: {} of the interrupted run cannot be used, because {} is missing or of another run; it begins again", name_,
        counted(steps, "finished step"), built ? built.path(run_file) : stage_->folder.path(staged_new)));
  else if (built)
    note(fmt::format("{}: no finished step of the interrupted run is known; it begins again", name_));
}

/// Throws Error{usage} if the directory has a file, or a link, that this tool did not make.
void OutputDir::check_is_ours(const HeldFolder& dir) const {
  const std::string why = why_not_ours(dir, place_.name, place_.folder(), journal_->head());
  if (!why.empty()) fail(ErrorKind::usage, "{}: {}; move it away first", dir.above.path(dir.name), why);
}

/// Removes what an interrupted run built. Throws Error{usage} if an old output is left behind.
void OutputDir::remove_leftover() {
  const std::string old = replaced_in(stage_->folder, journal_->text());
  if (!old.empty() && stage_->folder.rmdir(old) != 0)
    fail(ErrorKind::usage, "{}: is {}", stage_->folder.path(old),
         finished_ ? fmt::format("the output that {} replaced; remove it: {}", name_, how_to_clean())
                   : fmt::format("an old output, and {} is not the one that replaced it; move it away first", name_));
  remove_new(staged(staged_new), place_.name, place_.folder(), journal_->head());
  stage_->folder.sync();  // a power loss must not restore the directory without its journal
}

void OutputDir::begin(const OpenOptions& start) {
  remove_leftover();
  journal_->clear();
  new_.emplace(stage_->folder, staged_new);
  new_->folder = stage_->folder.make(staged_new);
  built_ = true;
  JournalHead head{start.options, start.source, random_digits() + random_digits(), start.made, one_line(start.inputs)};
  if (start.existing == Existing::extend && old_)
    for (const std::string& name : made_(old_->folder)) head.made.push_back(name);
  write_run_file(new_->folder, place_.name, head);
  journal_->begin(head);
}

OutputDir::~OutputDir() {
  try {
    end();
  } catch (const std::exception&) {  // for example out of memory; the leftovers are those of a crash
  }
}

void OutputDir::end() {
  if (committed_) return;
  if (!deferred_ || !built_) {
    const bool is_empty = !stage_->folder.has(staged_new) && !is_left();
    if (is_empty || (!journal_->begun() && !journal_->text().foreign)) end_journal();
    return;
  }
  if (keep_ && is_in_place() && !journal_->records().empty()) {
    note(fmt::format("{}: kept {}; {}run the same command again to continue", place_.path(),
                     counted(int64_t(journal_->records().size()), "finished step"),
                     !replace_ && place_.above.has(place_.name) ? "move what is there away, then " : ""));
    return;
  }
  if (!keep_ && !journal_->records().empty())
    note(fmt::format("{}: discarded {}", place_.path(), counted(int64_t(journal_->records().size()), "finished step")));
  if (new_->is_in_place())
    remove_new(*new_, place_.name, place_.folder(), journal_->head());
  else if (stage_->folder.has(staged_new))
    return;  // another process put it there: the journal says that this run did not
  end_journal();
}

void OutputDir::fail_changed() const {
  fail(ErrorKind::io, "{}: another user or program has put something else in its place; it stays as it is", name_);
}

void OutputDir::fail_removed() const {
  fail(ErrorKind::io, "{}: was removed meanwhile{}", stage_->folder.path(),
       is_part_ ? "; other processes may have merged or discarded the parts" : ", but not by mxfp4-pack");
}

/// Publishes the directory; then removes the replaced output.
void OutputDir::commit(const std::string& list) {
  if (!committed_) {
    if (!holds_run(built(), journal_->head().run)) fail_removed();
    check_is_ours(*new_);
    sync_built();
    journal_->finish(list);
    stage_->folder.sync();
    place_.above.sync();  // makes the journal's name durable: without it the directory has no owner
    // A process that removed the journal also removes the directory, or begins another one there.
    if (!is_part_ && !is_in_place()) fail_removed();
    built();
    const Fd above = place_.above.readable();
    if (!above) fail_errno(place_.above.path(), "cannot open", errno);
    rename_into_place();
    sync_names(above);
    stage_->folder.sync();
  }
  if (replace_) {
    remove_replaced(*old_, new_->folder, [&](const std::string& name) {
      const auto was = before_.find(name);
      const auto is = old_->folder.look(name);
      return was != before_.end() && is && was->second == state_of(*is);
    });
  }
  remove_merged_parts(staged(staged_parts), journal_->head().made);
  if (is_left()) return;  // the journal says that they are merged
  if (new_) {
    remove_run_file(new_->folder);
    new_->folder.set_mode(mode_);
    new_->folder.sync();
  }
  end_journal();
}

/// Removes the journal and the staging directory.
void OutputDir::end_journal() {
  for (const char* name : {staged_old, staged_new}) stage_->folder.rmdir(name);  // if it is empty
  journal_->remove();
  if (stage_->is_in_place()) remove_empty_stage(place_.above, place_.name);
}

void OutputDir::sync_built() {
  if (source_folder_) privacy_ = Privacy(source_folder_->permitted());  // its owner may have restricted it since open()
  const Folder& built = new_->folder;
  const std::set<std::string> own =
      folders_of(std::set<std::string>(journal_->head().made.begin(), journal_->head().made.end()));
  for (const Entry& entry : entries_below(built)) {
    if (!entry.is_folder()) continue;
    const Folder folder = built.find(entry.name);
    const Folder old = old_ ? old_->folder.find(entry.name) : Folder();
    if (old && !own.contains(entry.name))  // not made by this run: its mode stays
      Privacy::keep(folder, old);
    else if (old)
      privacy_.apply(folder, old);
    else
      privacy_.apply(folder);  // here, since folders of an interrupted run need their mode as well
    folder.sync();
  }
  if (keeps_mode_)
    privacy_.apply(built, old_->folder);  // as it is by now: its owner may have restricted it during the run
  else
    privacy_.apply(built);
  built.sync();
}

/// Removes an output that another directory has replaced. If the run that replaced it was interrupted, the manifest of
/// the old output lists the files that may be removed.
void OutputDir::remove_replaced(const HeldFolder& old, const Folder& fresh, const IsOwn& is_own) {
  if (!old.is_in_place()) return;
  const std::string mounted = mounted_in(old.folder.path());
  if (!mounted.empty())
    fail(ErrorKind::usage, "{}: {} is mounted in it; unmount that first", old.folder.path(), mounted);
  std::set<std::string> listed;
  try {
    const auto names = made_ && !deferred_ ? made_(old.folder) : std::vector<std::string>();
    listed.insert(names.begin(), names.end());
  } catch (const Error&) {  // without a manifest every file is kept
  }
  std::set<std::string> known = listed;
  for (const auto& [name, state] : before_) known.insert(name);
  const std::set<std::string> folders = folders_of(known);
  const bool has_run = has_run_file(old.folder);  // of a run whose staging directory is gone
  const IsOwn may_go = [&](const std::string& name) {
    return is_own(name) || listed.count(name) > 0 || folders.count(name) > 0 || (has_run && name == run_file);
  };
  remove_directory(old, fresh, may_go, journal_->text().list);
  stage_->folder.sync();  // before the journal is removed
}

}  // namespace mxfp4
