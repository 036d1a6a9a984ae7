#include "src/io/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/io/parts.h"
#include "src/io/permitted.h"
#include "src/io/source_folder.h"
#include "src/io/swap.h"

namespace mxfp4 {

namespace {

/// The checksum of a file; empty if there is none.
std::string checksum_in(const Folder& dir, const std::string& file) {
  return dir.has_file(file) ? proof_of(dir, file).checksum : "";
}

}  // namespace

OutputDir::OutputDir(Place place, bool is_part, const std::string& out, ListOwn made)
    : place_(std::move(place)),
      name_(out),
      hidden_(hidden_beside(place_.name)),
      made_(std::move(made)),
      journal_(place_.above, hidden_.journal, out),
      is_part_(is_part) {
  if (!journal_.is_locked() && !is_part_)
    warn(fmt::format("{}: this file system has no locks; let no other run write here", out));
  put_back();
  const HeldFolder now = hold(place_.name);
  finished_ = journal_.begun() && holds(now.folder, journal_.proof());
  if (!finished_) return;
  const HeldFolder old = hold(place_.above.has(hidden_.partial) ? hidden_.partial : hidden_.aside);
  // Another user who may rename in the folder above could have put another output there.
  // A command that does not know the files of such an output leaves it to one that does.
  if (is_replaced(old) && knows_files_of(old.folder))
    remove_replaced(old, now.folder, [](const std::string&) { return false; });
  remove_merged_parts(hold(hidden_.parts), journal_.head().made);
}

bool OutputDir::knows_files_of(const Folder& dir) const {
  return snapshot_of(dir).empty() || (made_ && !made_(dir).empty());
}

/// Whether the finished output replaced this folder. The folder, and the file that proves it, must belong to this user.
bool OutputDir::is_replaced(const HeldFolder& old) const {
  if (!old || !old.folder.is_own()) return false;
  if (snapshot_of(old.folder).empty()) return true;
  const Proof& proof = journal_.proof();
  return !proof.replaced.empty() && holds(old.folder, {proof.file, proof.replaced});
}

void OutputDir::put_back() {
  if (place_.above.has(place_.name) || !place_.above.has(hidden_.aside)) return;
  const std::string why = why_no_output(hold(hidden_.aside), made_);
  if (!why.empty()) fail(ErrorKind::usage, "{}: {}; move it away first", place_.above.path(hidden_.aside), why);
  if (const int error = place_.above.rename(hidden_.aside, place_.above, place_.name))
    fail_errno(place_.path(), "cannot put back", error);
}

OutputDir::OutputDir(Place place, const std::string& out, ListOwn made)
    : OutputDir(std::move(place), false, out, std::move(made)) {}

OutputDir OutputDir::for_part(const Place& place, const std::string& part) {
  const std::string parts = hidden_beside(place.name).parts;
  for (;;) {
    HeldFolder held(place.above, parts);
    if (!held) held.folder = place.above.make_or_find(parts);
    check_own_parts(held);
    try {
      return OutputDir({std::move(held.folder), part}, true, place.path(), nullptr);
    } catch (const Error&) {
      if (place.above.has(parts)) throw;  // else another node failed and removed its part and the folder
    }
  }
}

void OutputDir::clean(Place place, ListOwn made) {
  const std::string path = place.path();
  OutputDir out(std::move(place), false, path, std::move(made));
  const Folder& above = out.place_.above;
  if (out.finished_) {  // the constructor removed the replaced output
    remove_parts(out.hold(out.hidden_.parts), out.journal_.head().made);
  } else {
    const HeldFolder partial = out.hold(out.hidden_.partial), aside = out.hold(out.hidden_.aside);
    for (const HeldFolder* dir : {&partial, &aside}) {
      out.check_not_whole(*dir);
      out.check_is_ours(*dir);
    }
    for (const HeldFolder* dir : {&partial, &aside}) out.remove_leftover(*dir);
    remove_parts(out.hold(out.hidden_.parts), explained_names(above, out.place_.name, out.journal_.head().made));
    out.journal_.remove();
  }
}

void OutputDir::open(const OpenOptions& start) {
  look_at_parts(start);
  keep_ = built_ = take_over(start);
  if (!committed_ && is_taken(place_.above, place_.name)) {
    if (start.existing == Existing::refuse || !made_)
      fail(ErrorKind::usage, "{}: exists; choose another place{}", name_,
           made_ ? ", or replace what mxfp4-pack made with --force" : "");
    old_.emplace(place_.above, place_.name);  // the run replaces this directory and no other
    before_ = snapshot_of(old_->folder);      // before the check: later files are not this tool's
    if (start.existing != Existing::extend) check_replaceable(name_, old_->folder, made_);
    set_aside_ = start.existing == Existing::set_aside;
  }
  if (!committed_)  // leftovers are continued or removed, so their space counts as free
    check_space(place_.above, start.bytes, {hidden_.partial, hidden_.parts});
  replace_ = !committed_ && place_.above.has(place_.name);
  if (replace_) look_at_predecessor();
  source_folder_ = start.source_folder;
  if (source_folder_)
    privacy_ = Privacy(source_folder_->permitted());
  else if (replace_)
    privacy_ = Privacy(permitted_in(old_->folder));
  deferred_.emplace();
  if (keep_) partial_->folder.make_private();  // a run that was killed late had given it OUT's mode
  // An existing run file is not written again: if the run ended in the middle of that, the staging directory would have
  // no owner.
  if (keep_ && !holds_run(partial_->folder, journal_.head().run))
    write_run_file(partial_->folder, place_.name, journal_.head());
  if (start.discards_other && !start.takes_parts) remove_parts(hold(hidden_.parts), start.made);
  if (!committed_ && !keep_) begin(start);
  if (replace_) check_movable(place_.above, place_.name, hidden_.partial, name_);
}

void OutputDir::look_at_parts(const OpenOptions& start) const {
  const HeldFolder parts = hold(hidden_.parts);
  const bool any = !read_parts(parts).empty();
  if (!start.even_in_use && are_being_written(parts))
    fail(ErrorKind::usage, "{}: other nodes may be writing parts of it; wait until they end", name_);
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
  if (s.st_uid != ::geteuid() && ::faccessat(place_.above.fd(), place_.name.c_str(), W_OK, 0) != 0)
    fail(ErrorKind::usage, "{}: belongs to another user and cannot be replaced; choose another place", name_);
  keeps_mode_ = old_->folder.is_own();
}

/// Whether this run continues the staging directory of another run. Throws Error{usage} if that run had other inputs
/// and has a finished step.
bool OutputDir::take_over(const OpenOptions& start) {
  const JournalHead& head = journal_.head();
  const bool same =
      start.options != OpenOptions::never_continued && head.options == start.options && head.source == start.source;
  if (finished_) {
    committed_ = same;
    return false;
  }
  if (journal_.is_foreign() && start.discards_other) return false;
  if (journal_.is_foreign())
    fail(ErrorKind::usage, "{}: an interrupted run of another version exists; discard it: {}", name_, how_to_clean());
  partial_.emplace(place_.above, hidden_.partial);
  if (journal_.records().empty() || !is_partial_ours()) return false;
  if (!same && start.discards_other) return false;
  if (!same)
    fail(ErrorKind::usage, "{}: an interrupted run {} exists; continue it, or discard it: {}", name_,
         head.source != start.source ? "of another source, or of this one before it changed,"
                                     : "with other options, or of another version,",
         how_to_clean());
  check_is_ours(*partial_);
  return true;
}

/// Whether the staging directory is the one that the journal describes.
bool OutputDir::is_partial_ours() const {
  return partial_ && is_partial_of(partial_->folder, journal_.head(), journal_.proof());
}

/// Throws Error{usage} if a directory has a file, or a link, that this tool did not make.
void OutputDir::check_is_ours(const HeldFolder& dir) const {
  const JournalHead head = head_for(dir.folder, journal_.head(), journal_.proof());
  const std::string why = why_not_ours(dir, place_.name, head, made_);
  if (!why.empty()) fail(ErrorKind::usage, "{}: {}; move it away first", place_.above.path(dir.name), why);
}

/// Throws Error{usage} if a directory is a complete output that the journal does not know. No run leaves such a
/// directory, so somebody may want to keep it.
void OutputDir::check_not_whole(const HeldFolder& dir) const {
  if (is_whole_output(dir.folder, made_) && !holds(dir.folder, journal_.proof()))
    fail(ErrorKind::usage, "{}: is a complete output that no journal names; move it away", dir.folder.path());
}

void OutputDir::remove_leftover(const HeldFolder& dir) {
  if (!dir) return;
  remove_partial(dir, place_.name, head_for(dir.folder, journal_.head(), journal_.proof()), made_);
  place_.above.sync();  // a power loss must not restore the directory without its journal
}

void OutputDir::begin(const OpenOptions& start) {
  const HeldFolder partial = hold(hidden_.partial), aside = hold(hidden_.aside);
  for (const HeldFolder* dir : {&partial, &aside}) {
    check_not_whole(*dir);
    check_is_ours(*dir);
  }
  for (const HeldFolder* dir : {&partial, &aside}) remove_leftover(*dir);
  journal_.clear();
  partial_.emplace(place_.above, hidden_.partial);
  partial_->folder = place_.above.make(hidden_.partial);
  built_ = true;
  JournalHead head{start.options, start.source, random_digits() + random_digits(), start.made};
  if (start.existing == Existing::extend && old_)
    for (const std::string& name : made_(old_->folder)) head.made.push_back(name);
  write_run_file(partial_->folder, place_.name, head);
  journal_.begin(head);
}

OutputDir::~OutputDir() {
  try {
    end();
  } catch (const std::exception&) {  // for example out of memory; the leftovers are those of a crash
  }
}

void OutputDir::end() {
  if (committed_) return;
  if (!deferred_) {
    // A leftover that this command did not remove needs the journal.
    if (finished_ && !place_.above.has(hidden_.partial) && !place_.above.has(hidden_.aside)) remove_finished_journal();
    return;
  }
  if (!built_) return;
  const bool is_known = journal_.is_in_place();  // else somebody removed the files of this run
  if (keep_ && is_known && !journal_.records().empty()) {
    note(fmt::format("{}: {} finished steps are kept; run the same command again to continue", place_.path(),
                     journal_.records().size()));
    return;
  }
  if (is_known || is_partial_ours()) remove_partial(*partial_, place_.name, journal_.head(), made_);
  journal_.remove();
}

void OutputDir::fail_changed() const {
  fail(ErrorKind::io, "{}: another user or program has put something else in its place; it stays as it is", name_);
}

void OutputDir::fail_removed() const {
  fail(ErrorKind::io, "{}: was removed meanwhile{}", place_.above.path(hidden_.partial),
       is_part_ ? "; other processes may have merged or discarded the parts" : ", but not by mxfp4-pack");
}

/// Publishes the staging directory; then removes the replaced output, unless it was set aside.
void OutputDir::commit(const std::string& proof) {
  if (!committed_) {
    if (!holds_run(built(), journal_.head().run)) fail_removed();
    check_is_ours(*partial_);
    if (!proof.empty()) {
      Proof by = proof_of(partial_->folder, proof);
      if (old_) by.replaced = checksum_in(old_->folder, proof);
      journal_.finish(by);
    }
    place_.above.sync();  // makes the journal's name durable: without it the complete directory has no owner
    if (const int error = partial_->folder.unlink(run_file); error != 0 && error != ENOENT)
      fail_errno(partial_->folder.path(run_file), "cannot remove", error);
    sync_built();
    // A process that removed the journal also removes the directory, or begins another one there.
    if (!is_part_ && !journal_.is_in_place()) fail_removed();
    built();
    const Fd above = place_.above.readable();
    if (!above) fail_errno(place_.above.path(), "cannot open", errno);
    rename_into_place();  // needs no memory after the rename
    committed_ = true;
    sync_names(above);
    if (set_aside_) note(fmt::format("{}: the old output is kept as {}", name_, kept_));
  }
  if (replace_) {
    remove_replaced(*old_, partial_->folder, [&](const std::string& name) {
      const auto was = before_.find(name);
      const auto is = old_->folder.look(name);
      return was != before_.end() && is && was->second == state_of(*is);
    });
  }
  if (place_.above.has(hidden_.parts)) remove_merged_parts(hold(hidden_.parts), journal_.head().made);
  remove_finished_journal();
}

void OutputDir::sync_built() {
  if (source_folder_) privacy_ = Privacy(source_folder_->permitted());  // its owner may have restricted it since open()
  const Folder& built = partial_->folder;
  const std::set<std::string> own =
      folders_of(std::set<std::string>(journal_.head().made.begin(), journal_.head().made.end()));
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

/// Removes the journal, unless parts are left: the journal records that they are merged.
void OutputDir::remove_finished_journal() {
  const HeldFolder parts = hold(hidden_.parts);
  if (!parts || !parts.folder.is_own()) journal_.remove();  // a folder of another user has no parts
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
  const IsOwn may_go = [&](const std::string& name) {
    return is_own(name) || listed.count(name) > 0 || folders.count(name) > 0 ||
           name == run_file;  // left in the staging directory by an interrupted commit
  };
  remove_directory(old, fresh, may_go, journal_.proof().file);
  place_.above.sync();  // before the journal is removed
}

}  // namespace mxfp4
