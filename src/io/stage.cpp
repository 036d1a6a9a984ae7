#include "src/io/stage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "src/base/error.h"
#include "src/base/long_text.h"
#include "src/io/place.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_run_bytes = 64 << 20;
constexpr std::string_view tool = ".mxfp4-pack";

/// A run file's contents: the output's name, and the run.
struct RunFile {
  std::string place;
  JournalHead head;
};

/// The run file, if only this user can have written it; else a descriptor that holds nothing. The file is opened to be
/// sure: the client of a file server may remember a file that a killed run has removed. Throws Error{io} if a file that
/// exists cannot be opened.
Fd open_run_file(const Folder& dir) {
  if (!dir || !dir.is_own()) return {};
  Fd opened = dir.open(run_file, O_RDONLY | O_NONBLOCK);
  if (!opened && errno != ENOENT && errno != ESTALE && errno != ELOOP && errno != ENXIO)
    fail_errno(dir.path(run_file), "cannot open", errno);
  if (!opened) return {};
  const struct stat s = opened.stat();
  return S_ISREG(s.st_mode) && s.st_uid == ::geteuid() && !(s.st_mode & 022) && s.st_nlink == 1 ? std::move(opened)
                                                                                                : Fd();
}

RunFile read_run_file(const Folder& dir) {
  const Fd fd = open_run_file(dir);
  const int64_t bytes = fd ? std::min<int64_t>(fd.stat().st_size, max_run_bytes) : 0;
  std::string text(size_t(bytes), '\0');
  if (bytes > 0) fd.read(text.data(), bytes, 0);
  const size_t end = text.find('\n');
  RunFile run;
  if (end == text.npos) return run;  // cut short: the directory has no other file yet
  run.place = text.substr(0, end);
  read_run_line(text.substr(end + 1), run.head);
  return run;
}

bool has_entries(const Folder& dir) { return dir && !names_in_folder(dir).empty(); }

/// The names that may be in new/. A run that adds a set links the files of OUT.
std::set<std::string> known_in(const HeldFolder& dir, const Folder& out, const JournalHead& head) {
  const RunFile run = read_run_file(dir.folder);
  const std::vector<std::string>& made = run.head.run.empty() ? head.made : run.head.made;
  std::set<std::string> all(made.begin(), made.end());
  all.insert(run_file);
  if (!out || !out.is_own()) return all;
  for (const auto& [name, identity] : snapshot_of(dir.folder))
    if (!all.contains(name) && is_in_both(dir.folder, out, name)) all.insert(name);
  return all;
}

}  // namespace

std::string stage_beside(const std::string& name) { return fmt::format(".{}{}", name, tool); }

std::string name_behind(const std::string& name) {
  const bool is_stage = name.size() > 1 + tool.size() && name[0] == '.' && name.ends_with(tool);
  return is_stage ? name.substr(1, name.size() - 1 - tool.size()) : "";
}

std::string why_no_stage(const HeldFolder& stage) {
  const auto s = stage.above.look(stage.name);
  if (!s) return {};
  if (S_ISLNK(s->st_mode)) return "is a link; remove it";
  if (!stage)
    return S_ISDIR(s->st_mode) ? "" : "is not a folder; move it away";  // another process may just have made it
  if (!stage.folder.is_own())
    return fmt::format("belongs to user {}, and this is user {}; write and merge as one user",
                       stage.folder.stat().st_uid, ::geteuid());
  if (stage.above.stat().st_dev != stage.folder.stat().st_dev)
    return "is on another file system than the output, from which nothing can be renamed; unmount it";
  if (!stage.folder.is_private()) return "is open to others, so it is no staging directory of mxfp4-pack; move it away";
  return {};
}

HeldFolder find_stage(const Folder& above, const std::string& name) {
  HeldFolder stage(above, stage_beside(name));
  if (const std::string why = why_no_stage(stage); !why.empty())
    fail(ErrorKind::usage, "{}: {}", above.path(stage.name), why);
  return stage;
}

HeldFolder make_stage(const Folder& above, const std::string& name) {
  HeldFolder stage = find_stage(above, name);
  if (const std::string foreign = stage ? foreign_in_stage(stage.folder) : ""; !foreign.empty())
    fail(ErrorKind::usage, "{}: {} was not made by mxfp4-pack; move it away first", stage.folder.path(),
         printable(foreign));
  if (stage) return stage;
  const int error = above.try_make(stage.name);
  const bool takes_none = error == ENOENT && above.stat().st_nlink > 0;  // for example /proc
  if (error == EACCES || error == EROFS || takes_none)
    fail(ErrorKind::io, "{}: cannot be made in {}: {}", above.path(name), above.path(),
         takes_none ? "no file can be created there" : std::strerror(error));
  if (error != 0) fail_errno(above.path(stage.name), "cannot create", error);
  return find_stage(above, name);
}

std::string foreign_in_stage(const Folder& stage) {
  for (const std::string& name : names_in_folder(stage, Unreadable::skip))
    if (name != staged_journal && name != staged_new && name != staged_old && name != staged_parts) return name;
  return {};
}

void remove_empty_stage(const Folder& above, const std::string& name) { above.rmdir(stage_beside(name)); }

void write_run_file(const Folder& dir, const std::string& place, const JournalHead& head) {
  write_text(dir, run_file, printable(place) + "\n" + line_of(head));
  dir.sync();
}

bool holds_run(const Folder& dir, const std::string& run) { return !run.empty() && read_run_file(dir).head.run == run; }

bool has_run_file(const Folder& dir) { return !read_run_file(dir).head.run.empty(); }

void remove_run_file(const Folder& dir) {
  const mode_t mode = dir.make_writable();
  const int error = dir.unlink(run_file);
  dir.set_mode(mode);
  if (error != 0 && error != ENOENT) fail_errno(dir.path(run_file), "cannot remove", error);
}

std::string replaced_in(const Folder& stage, const JournalText& journal) {
  if (!stage) return {};
  if (has_entries(stage.find(staged_old))) return staged_old;
  const Folder built = journal.finished ? stage.find(staged_new) : Folder();
  return built && !holds_run(built, journal.head.run) ? staged_new : "";
}

StageState state_of(const Folder& stage, const Folder& out, bool is_out_there, const JournalText& journal) {
  if (journal.foreign) return StageState::other_version;
  if (journal.finished && holds_run(out, journal.head.run)) return StageState::published;
  if (const std::string old = replaced_in(stage, journal); !old.empty() && has_entries(stage.find(old)))
    return is_out_there || !journal.finished ? StageState::left_behind : StageState::between;
  const bool is_built = stage && holds_run(stage.find(staged_new), journal.head.run);
  return is_built && !journal.records.empty() ? StageState::building : StageState::begun;
}

std::string why_not_ours(const HeldFolder& dir, const std::string& place, const Folder& out, const JournalHead& head) {
  if (!dir) return dir.is_taken() ? "it is not a folder" : "";
  try {
    if (!dir.above.has(dir.name)) return {};
    if (!dir.folder.is_own()) return "it belongs to another user";
    if (const std::string mounted = mounted_in(dir.folder.path()); !mounted.empty())
      return fmt::format("{} is mounted in it", mounted);
    if (const std::string of = read_run_file(dir.folder).place; !of.empty() && of != printable(place))
      return fmt::format("it belongs to a run that writes {}", printable(of));
    const std::string foreign = foreign_in(dir.folder, known_in(dir, out, head));
    return foreign.empty() ? "" : printable(foreign) + " was not made by mxfp4-pack, or was changed since";
  } catch (const Error& e) {
    return e.lines.front();
  } catch (const fs::filesystem_error&) {
    if (dir.is_in_place()) throw;
    return {};  // its run has published or removed it
  }
}

void remove_new(const HeldFolder& dir, const std::string& place, const Folder& out, const JournalHead& head) {
  if (!dir) return;
  if (const std::string why = why_not_ours(dir, place, out, head); !why.empty())
    fail(ErrorKind::usage, "{}: {}; move it away first", dir.above.path(dir.name), why);
  remove_own(dir, known_in(dir, out, head), run_file);
}

}  // namespace mxfp4
