#include "src/io/output.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/io/parts.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

void sync_dir(const fs::path& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno(dir.string(), "cannot open", errno);
  const int result = ::fsync(fd), error = errno;
  ::close(fd);
  if (result != 0 && error != EINVAL) fail_errno(dir.string(), "cannot sync to disk", error);
}

/// Swaps two directories in one step; false where the file system cannot.
bool swap_at_once(const std::string& fresh, const std::string& old) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) fail_errno(old, "cannot replace", errno);
  return false;
}

/// The same; where that cannot be, `old` is moved to `aside` first.
void swap_directories(const std::string& fresh, const std::string& old, const std::string& aside) {
  if (swap_at_once(fresh, old)) return;
  if (::rename(old.c_str(), aside.c_str()) != 0) fail_errno(old, "cannot move aside", errno);
  if (::rename(fresh.c_str(), old.c_str()) != 0) fail_errno(old, "cannot rename into place", errno);
}

/// Not over anything but an empty directory.
void rename_to(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if ((errno != EINVAL && errno != ENOSYS) || ::rename(from.c_str(), to.c_str()) != 0)
    fail_errno(to, "cannot rename into place", errno);
}

/// overlayfs does not move folders of its lower layers, which only an attempt can tell. No folder takes the place of
/// one that is not empty, as `partial` is, so that the attempt changes nothing.
void check_movable(const std::string& name, const std::string& out, const std::string& partial) {
  struct statfs s;
  if (::statfs(out.c_str(), &s) != 0 || s.f_type != OVERLAYFS_SUPER_MAGIC) return;
  if (::rename(out.c_str(), partial.c_str()) != 0 && errno == EXDEV)
    fail(ErrorKind::usage,
         "{}: is in a lower layer of overlayfs, as of a container's image, and cannot be replaced; "
         "choose another place",
         name);
}

/// Space for a file of so many bytes, where a disk's file system can set some apart. In memory that costs what writing
/// does, and one thread would do it all; so it may on a server, which is asked for free space before and says at
/// every sync what it has no space for.
void reserve_space(const Fd& fd, int64_t bytes) {
  if (medium_of(fd) != Medium::disk) return;
  while (::fallocate(fd.get(), 0, 0, bytes) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return;
    if (errno != EINTR) fail_errno(fd.name(), "cannot reserve space", errno);
    throw_if_interrupted();
  }
}

/// What a file or folder that is created with these bits permits.
mode_t mode_of_new(mode_t bits) {
  const mode_t mask = ::umask(077);
  ::umask(mask);
  return bits & ~mask;
}

}  // namespace

OutputDir::OutputDir(Place place, const std::string& out, ListOwn made)
    : name_(out),
      out_(place.path),
      source_(place.source),
      hidden_(hidden_beside(place.path)),
      made_(std::move(made)),
      journal_(hidden_.journal, out),
      is_part_(place.is_part) {
  if (!journal_.is_locked() && !is_part_)
    warn(fmt::format("{}: this file system has no locks; let no other run write here", out));
  put_back();
  finished_ = journal_.begun() && holds(out_, journal_.proof());
  if (!finished_) return;
  remove_replaced([](const std::string&) { return false; });
  remove_merged_parts(hidden_.parts, journal_.head().made);
}

void OutputDir::put_back() {
  if (fs::exists(out_) || !fs::exists(fs::symlink_status(hidden_.aside))) return;
  const std::string why = why_no_output(hidden_.aside, made_);
  if (!why.empty()) fail(ErrorKind::usage, "{}: {}; move it away first", hidden_.aside, why);
  if (::rename(hidden_.aside.c_str(), out_.c_str()) != 0) fail_errno(out_, "cannot put back", errno);
}

OutputDir::OutputDir(const std::string& out, const std::string& source, ListOwn made)
    : OutputDir(Place{place_of(out, source), source}, out, std::move(made)) {}

OutputDir OutputDir::for_part(const std::string& place, const std::string& part, const std::string& source) {
  const std::string parts = hidden_beside(place).parts;
  for (;;) {
    if (::mkdir(parts.c_str(), 0700) != 0 && errno != EEXIST) fail_errno(parts, "cannot create", errno);
    check_own_parts(parts);
    try {
      return OutputDir(Place{parts + "/" + part, source, true}, place, nullptr);
    } catch (const Error&) {
      if (fs::exists(parts)) throw;  // else a node whose part was the only one has failed, and taken the folder away
    }
  }
}

void OutputDir::clean(const std::string& place, ListOwn made) {
  OutputDir out(Place{place, {}}, place, std::move(made));
  if (out.finished_) {  // what was replaced is gone by now
    remove_parts(out.hidden_.parts, out.journal_.head().made);
  } else {
    for (const std::string& dir : {out.hidden_.partial, out.hidden_.aside}) out.check_is_ours(dir);
    remove_partial(out.hidden_.aside, place, out.journal_.head(), out.made_);
    sync_dir(fs::path(place).parent_path());  // it must not come back without its journal
    take_from_run(place, out.made_);          // there may be one that goes on without a lock
  }
  remove_taken(place, out.journal_.head(), out.made_);
}

void OutputDir::open(const OpenOptions& start) {
  look_at_parts(start);
  keep_ = built_ = take_over(start);
  if (!committed_ && is_taken(out_)) {
    if (start.existing == Existing::refuse || !made_)
      fail(ErrorKind::usage, "{}: exists; choose another place{}", name_,
           made_ ? ", or replace what mxfp4-pack made with --force" : "");
    if (start.existing != Existing::extend) check_replaceable(name_, out_, made_);
    set_aside_ = start.existing == Existing::set_aside;
  }
  if (!committed_)  // what an earlier run left is written on, or goes
    check_space(fs::path(out_).parent_path().string(), start.bytes, {hidden_.partial, hidden_.parts});
  replace_ = !committed_ && fs::exists(out_);
  umask_.emplace(umask_like(source_.empty() ? out_ : source_));
  mode_ = mode_of_new(0777);
  if (replace_) look_at_predecessor();
  go_on_ = start.go_on;
  deferred_.emplace();
  // Never written over: a run ended in the middle of that would leave a partial output that is nobody's.
  if (keep_ && !holds_run(hidden_.partial, journal_.head().run)) write_run_file(hidden_.partial, journal_.head());
  if (start.leftover == PartialPolicy::discard) remove_parts(hidden_.parts, start.made);
  if (!committed_ && !keep_) begin(start);
  if (replace_) check_movable(name_, out_, hidden_.partial);
}

void OutputDir::look_at_parts(const OpenOptions& start) const {
  const bool any = !read_parts(hidden_.parts).empty();
  if (!start.even_in_use && are_being_written(hidden_.parts))
    fail(ErrorKind::usage, "{}: other nodes may be writing parts of it; let them end{}", name_,
         start.resumes ? ", or go on with --even-in-use" : "");
  if (start.leftover == PartialPolicy::refuse && any)
    fail(ErrorKind::usage, "{}: parts of it are there; put them together with merge, or {}", name_,
         way_to_begin(start));
}

/// What to do where another run left something: begin in spite of it, or remove it first.
std::string OutputDir::way_to_begin(const OpenOptions& start) const {
  if (start.resumes) return "begin anew with convert --restart";
  return fmt::format("remove what is there with 'mxfp4-pack clean {} --remove'", fs::path(out_).parent_path().string());
}

void OutputDir::look_at_predecessor() {
  struct stat s;
  if (::lstat(out_.c_str(), &s) != 0) fail_errno(name_, "cannot stat", errno);
  if (s.st_uid != ::geteuid() && ::access(out_.c_str(), W_OK) != 0)
    fail(ErrorKind::usage, "{}: belongs to another user and cannot be replaced; choose another place", name_);
  mode_ = s.st_mode & 07777;
  before_ = snapshot_of(out_);
}

/// What to do about the journal of an earlier run: true where this run goes on with what is there.
bool OutputDir::take_over(const OpenOptions& start) {
  const JournalHead& head = journal_.head();
  const bool same = head.options == start.options && head.source == start.source;
  if (finished_) {
    committed_ = same && start.leftover == PartialPolicy::resume;
    return false;
  }
  if (start.leftover == PartialPolicy::discard) return false;
  if (journal_.is_foreign())
    fail(ErrorKind::usage, "{}: another version's partial output is there; {}", name_, way_to_begin(start));
  if (journal_.records().empty() || !is_partial_ours()) return false;
  if (start.leftover == PartialPolicy::refuse)
    fail(ErrorKind::usage, "{}: a partial output is there; {}{}", name_,
         start.resumes ? "go on with convert --resume, or " : "choose another place, or ", way_to_begin(start));
  if (!same)
    fail(ErrorKind::usage, "{}: the partial output was begun {}; begin anew with convert --restart", name_,
         head.source != start.source ? "from another source, or the source has changed"
                                     : "with other options or another version");
  check_is_ours(hidden_.partial);
  return true;
}

/// Whether the partial directory is the one that the journal is about.
bool OutputDir::is_partial_ours() const { return is_partial_of(hidden_.partial, journal_.head(), journal_.proof()); }

/// Nothing of others is removed, links among them.
void OutputDir::check_is_ours(const std::string& dir) const {
  if (!fs::exists(fs::symlink_status(dir))) return;
  const std::string why = why_not_ours(dir, out_, journal_.head(), made_);
  if (!why.empty()) fail(ErrorKind::usage, "{}: {}; move it away first", dir, why);
}

void OutputDir::remove_leftovers() {
  for (const std::string& dir : {hidden_.partial, hidden_.aside}) check_is_ours(dir);
  for (const std::string& dir : {hidden_.partial, hidden_.aside}) {
    if (!fs::exists(fs::symlink_status(dir))) continue;
    remove_partial(dir, out_, journal_.head(), made_);
    sync_dir(fs::path(out_).parent_path());  // it must not come back without its journal
  }
}

/// No run leaves one that its journal does not speak of: somebody may have put it there to keep it.
void OutputDir::check_not_whole(const std::string& dir) const {
  if (!is_whole_output(dir, made_) || holds(dir, journal_.proof())) return;
  const std::set<std::string> begun(journal_.head().made.begin(), journal_.head().made.end());
  const std::vector<std::string> names = made_(dir);
  if (std::all_of(names.begin(), names.end(), [&](const std::string& name) { return begun.contains(name); })) return;
  fail(ErrorKind::usage,
       "{}: is a whole output, which no journal speaks of; move it away, or remove it with 'clean --remove {}'", dir,
       fs::path(out_).parent_path().string());
}

void OutputDir::begin(const OpenOptions& start) {
  for (const std::string& dir : {hidden_.partial, hidden_.aside}) {
    check_is_ours(dir);
    check_not_whole(dir);
  }
  remove_leftovers();
  journal_.clear();
  if (::mkdir(hidden_.partial.c_str(), 0700) != 0) fail_errno(hidden_.partial, "cannot create", errno);
  built_ = true;
  JournalHead head{start.options, start.source, random_digits() + random_digits(), start.made};
  if (start.existing == Existing::extend)
    for (const std::string& name : made_(out_)) head.made.push_back(name);
  write_run_file(hidden_.partial, head);
  journal_.begin(head);
}

OutputDir::~OutputDir() {
  try {
    end();
  } catch (const std::exception&) {  // out of memory, say: what is left is as after a crash
  }
}

void OutputDir::end() {
  if (committed_) return;
  if (!deferred_) {
    if (finished_) remove_finished_journal();
    return;
  }
  if (!built_) return;
  const bool is_known = journal_.is_in_place();  // else somebody took away what this run wrote
  if (keep_ && is_known && !journal_.records().empty()) {
    note(fmt::format("{}: {} finished steps are kept; {}", out_, journal_.records().size(), go_on_));
    return;
  }
  if (is_known || is_partial_ours()) remove_partial(hidden_.partial, out_, journal_.head(), made_);
  journal_.remove();
}

std::string OutputDir::path(const std::string& name) const {
  if (!fs::exists(hidden_.partial)) fail_removed();
  fs::path folder = hidden_.partial;  // which is not made again
  for (const fs::path& step : fs::path(name).parent_path()) {
    folder /= step;
    if (!fs::is_directory(folder) && ::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      fail_errno(folder.string(), "cannot create", errno);
  }
  return (fs::path(hidden_.partial) / name).string();
}

void OutputDir::fail_removed() const {
  fail(ErrorKind::io, "{}: was removed meanwhile, as {}", hidden_.partial,
       is_part_ ? "when its parts are merged or cleaned up" : "clean --even-in-use does");
}

Fd OutputDir::create(const std::string& name, int64_t bytes) const {
  Fd fd = open_own(path(name), name);
  if (bytes > 0) reserve_space(fd, bytes);  // mostly makes it as long, too
  if (fd.stat().st_size != bytes && ::ftruncate(fd.get(), bytes) != 0) fail_errno(name, "cannot set its size", errno);
  return fd;
}

void OutputDir::take(const std::string& from, const std::string& name) const {
  struct stat s;
  const std::string to = path(name);
  const mode_t mode = mode_of_new(0666);
  if (::lstat(from.c_str(), &s) == 0 && s.st_nlink == 1 && (s.st_mode & 0777) != mode) ::chmod(from.c_str(), mode);
  if (::rename(from.c_str(), to.c_str()) != 0) fail_errno(from, "cannot move", errno);
}

/// What was built takes the name that what was there is to have, and then the two are swapped: killed at any moment, a
/// run leaves both, neither under a hidden name. One that fails puts back what was there.
void OutputDir::set_aside() {
  const std::string fresh = move_to_kept(hidden_.partial, out_);
  kept_ = fresh;
  try {
    if (!swap_at_once(fresh, out_)) {
      kept_ = move_to_kept(out_, out_);
      rename_to(fresh, out_);
    }
  } catch (...) {
    if (kept_ != fresh) ::rename(kept_.c_str(), out_.c_str());
    ::rename(fresh.c_str(), hidden_.partial.c_str());
    throw;
  }
  replace_ = false;
}

void OutputDir::rename_into_place() {
  if (set_aside_) return set_aside();
  if (replace_) return swap_directories(hidden_.partial, out_, hidden_.aside);
  rename_to(hidden_.partial, out_);
}

void OutputDir::commit(const std::string& proof) {
  if (!committed_) {
    if (!holds_run(hidden_.partial, journal_.head().run)) fail_removed();
    check_is_ours(hidden_.partial);
    if (!proof.empty()) journal_.finish(proof_of(hidden_.partial, proof));
    const fs::path parent = fs::path(out_).parent_path();
    sync_dir(parent);  // the journal's name: without it what is whole would be nobody's
    if (::unlink((hidden_.partial + "/" + run_file).c_str()) != 0 && errno != ENOENT)
      fail_errno(hidden_.partial + "/" + run_file, "cannot remove", errno);
    for (const Entry& entry : entries_below(hidden_.partial))
      if (entry.is_folder()) sync_dir(entry.path);
    if (::chmod(hidden_.partial.c_str(), mode_) != 0) fail_errno(hidden_.partial, "cannot set its mode", errno);
    sync_dir(hidden_.partial);
    // Who removed the journal removes the directory too, or begins another there.
    if (!is_part_ && !journal_.is_in_place()) fail_removed();
    rename_into_place();  // after it no memory is asked for
    committed_ = true;
    sync_dir(parent);
    if (set_aside_) note(fmt::format("{}: what was there is kept as {}", name_, kept_));
  }
  if (replace_) {
    const std::string old = replaced();
    remove_replaced([&](const std::string& name) {
      struct stat s;
      const auto was = before_.find(name);
      return was != before_.end() && ::lstat((old + "/" + name).c_str(), &s) == 0 && was->second == state_of(s);
    });
  }
  remove_merged_parts(hidden_.parts, journal_.head().made);
  remove_finished_journal();
}

/// But while parts are left: it says that they are merged.
void OutputDir::remove_finished_journal() {
  if (!is_there(hidden_.parts)) journal_.remove();
}

std::string OutputDir::replaced() const {
  return fs::exists(fs::symlink_status(hidden_.partial)) ? hidden_.partial : hidden_.aside;
}

/// What another directory has taken the place of. Where the run that did it was cut short, its manifest says what of it
/// may go.
void OutputDir::remove_replaced(const IsOwn& is_own) {
  const std::string old = replaced();
  if (!fs::is_directory(fs::symlink_status(old))) return;
  const std::string mounted = mounted_in(old);
  if (!mounted.empty()) fail(ErrorKind::usage, "{}: {} is mounted in it; unmount that first", old, mounted);
  std::set<std::string> listed;
  try {
    const auto names = made_ && !deferred_ ? made_(old) : std::vector<std::string>();
    listed.insert(names.begin(), names.end());
  } catch (const Error&) {  // nothing is known of it, so all of it is kept
  }
  std::set<std::string> known = listed;
  for (const auto& [name, state] : before_) known.insert(name);
  const std::set<std::string> folders = folders_of(known);
  const IsOwn may_go = [&](const std::string& name) {
    return is_own(name) || listed.count(name) > 0 || folders.count(name) > 0 ||
           name == run_file;  // of a partial output equal to what is there
  };
  remove_directory(old, out_, may_go, journal_.proof().file);
  sync_dir(fs::path(out_).parent_path());  // before the journal goes
}

}  // namespace mxfp4
