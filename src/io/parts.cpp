#include "src/io/parts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <set>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/io/leftover.h"
#include "src/io/merge_claim.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// As far as it can stand in a file's name.
std::string host_name() {
  char name[65] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "host";
  std::string text = name;
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  return text;
}

/// Of a part that is not finished, by the path of its journal or of its partial folder; else empty.
std::string place_of_part(const std::string& path) {
  return place_behind(fs::path(path).parent_path().string(), fs::path(path).filename().string());
}

/// Of a finished part: one that is not may have the file, too.
bool has_record(const std::string& dir) {
  return place_of_part(dir).empty() && is_own_folder(dir) &&
         fs::is_regular_file(fs::symlink_status(dir + "/" + part_record));
}

PartFolder read_part(const std::string& dir) {
  PartFolder part;
  part.dir = dir;
  part.record = read_journal(open_read(dir + "/" + part_record, std::string(part_record)));
  if (!part.record.begun) return part;
  part.command = parse_json(part.record.head.run, dir);
  part.number = {part.command.value("part", -1), part.command.value("parts", 0)};
  return part;
}

/// Its journal goes last: it says what is the part's where that is whole but for its name.
void remove_unfinished(const std::string& place) {
  const HiddenNames hidden = hidden_beside(place);
  JournalHead head;
  if (fs::exists(hidden.journal)) head = read_journal(open_read(hidden.journal)).head;
  remove_partial(hidden.partial, place, head, nullptr);
  fs::remove(hidden.journal);
}

std::string why_not_own_unfinished(const std::string& place) {
  const HiddenNames hidden = hidden_beside(place);
  if (!is_there(hidden.partial)) return {};
  const JournalHead head = is_there(hidden.journal) ? read_journal(open_read(hidden.journal)).head : JournalHead();
  const std::string why = why_not_ours(hidden.partial, place, head, nullptr);
  return why.empty() ? "" : fmt::format("{}: {}", hidden.partial, why);
}

/// What is the part's own. made: where its record does not say so.
std::set<std::string> names_of(const JournalText& record, const std::vector<std::string>& made) {
  const std::vector<std::string>& own = record.begun ? record.head.made : made;
  std::set<std::string> names(own.begin(), own.end());
  names.insert({run_file, part_record});  // the first, where it could not be removed
  return names;
}

std::string why_not_own_part(const std::string& dir, const JournalText& record, const std::vector<std::string>& made) {
  const std::string foreign = printable(foreign_in(dir, names_of(record, made)));
  if (foreign.empty()) return {};
  return fmt::format("{}: {}{}", dir, foreign,
                     record.begun ? " was not made by mxfp4-pack"
                                  : fmt::format(": {} does not say what is mxfp4-pack's", part_record));
}

void remove_part(const std::string& dir, const std::vector<std::string>& made) {
  if (!has_record(dir)) return;
  const JournalText record = read_part(dir).record;
  if (const std::string why = why_not_own_part(dir, record, made); !why.empty())
    fail(ErrorKind::usage, "{}; move it away", why);
  remove_own(dir, names_of(record, made), part_record);
}

/// Whether it has a part's name and nothing in it: the rest of one whose removal was cut short.
bool is_rest_of_part(const std::string& dir) {
  int index, count;
  const std::string name = fs::path(dir).filename().string();
  return std::sscanf(name.c_str(), "%d-of-%d.", &index, &count) == 2 && is_own_folder(dir) && snapshot_of(dir).empty();
}

/// The entries of a folder; finished parts come first.
std::vector<std::string> entries_of(const std::string& parts) {
  std::vector<std::string> paths;
  for (const std::string& name : names_in_folder(parts, Unreadable::skip))  // it may be gone by now
    paths.push_back(parts + "/" + name);
  std::stable_partition(paths.begin(), paths.end(), has_record);
  return paths;
}

}  // namespace

std::string process_name() { return fmt::format("{}.{}", host_name(), ::getpid()); }

std::string random_digits() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string new_part_name(const PartNumber& part) {
  return fmt::format("{}-of-{}.{}.{}", part.index, part.count, process_name(), random_digits());
}

std::string run_of(const PartNumber& number, Json command) {
  command["part"] = number.index;
  command["parts"] = number.count;
  return one_line(command);
}

void check_own_parts(const std::string& parts) {
  struct stat s;
  if (::lstat(parts.c_str(), &s) != 0) return;
  if (!S_ISDIR(s.st_mode)) fail(ErrorKind::usage, "{}: not a folder of mxfp4-pack's own; remove it", parts);
  if (s.st_uid != ::geteuid())
    fail(ErrorKind::usage, "{}: the parts belong to user {}, and this is user {}; write and merge parts as one user",
         parts, s.st_uid, ::geteuid());
  struct stat beside;
  if (::stat(fs::path(parts).parent_path().c_str(), &beside) == 0 && beside.st_dev != s.st_dev)
    fail(ErrorKind::usage, "{}: on another file system than the output, where no part can be moved to; unmount it",
         parts);
  if (s.st_mode & 022) ::chmod(parts.c_str(), s.st_mode & 07755);
}

std::vector<PartFolder> read_parts(const std::string& parts) {
  check_own_parts(parts);
  std::vector<PartFolder> found;
  ::utimensat(AT_FDCWD, parts.c_str(), nullptr, 0);  // a cached list of another node's files is asked for again
  for (const std::string& path : entries_of(parts)) {
    if (!has_record(path)) continue;
    PartFolder part = read_part(path);
    const PartNumber& n = part.number;
    if (part.record.begun && n.index >= 0 && n.index < n.count) found.push_back(std::move(part));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.number.index < b.number.index; });
  return found;
}

bool is_young(const std::string& path) {
  struct stat now, s;
  const std::string folder = fs::path(path).parent_path().string();
  return ::lstat(path.c_str(), &s) == 0 && ::utimensat(AT_FDCWD, folder.c_str(), nullptr, 0) == 0 &&
         ::stat(folder.c_str(), &now) == 0 && now.st_mtime - s.st_mtime < young_seconds;
}

bool are_being_written(const std::string& parts) {
  const std::vector<std::string> paths = entries_of(parts);
  return std::any_of(paths.begin(), paths.end(),
                     [](const auto& path) { return !place_of_part(path).empty() && is_young(path); });
}

void remove_part(const std::string& dir) { remove_part(dir, {}); }

std::string why_not_own_parts(const std::string& parts, const std::vector<std::string>& made) {
  for (const std::string& path : entries_of(parts)) {
    const std::string place = place_of_part(path);
    std::string why;
    if (has_record(path))
      why = why_not_own_part(path, read_part(path).record, made);
    else if (!place.empty())
      why = why_not_own_unfinished(place);
    else if (!is_claim(fs::path(path).filename().string()) && !is_rest_of_part(path) && is_there(path))
      why = path + " was not made by mxfp4-pack";
    if (!why.empty()) return why;
  }
  return {};
}

void remove_parts(const std::string& parts, const std::vector<std::string>& made) {
  if (!is_own_folder(parts)) return;
  Problems problems;
  for (const std::string& path : entries_of(parts)) try {
      const std::string place = place_of_part(path);
      if (has_record(path))
        remove_part(path, made);
      else if (!place.empty())
        remove_unfinished(place);
      else if (is_claim(fs::path(path).filename().string()))
        remove_tree(path);
      else if (is_rest_of_part(path))
        remove_own(path, {}, {});
      else if (is_there(path))
        fail(ErrorKind::usage, "{} was not made by mxfp4-pack; move it away", path);
    } catch (const std::exception&) {
      problems.add(caught());
    }
  if (problems.any()) throw Error(ErrorKind::io, problems.errors());
  if (::rmdir(parts.c_str()) != 0 && errno != ENOENT) fail_errno(parts, "cannot remove", errno);
}

void remove_merged_parts(const std::string& parts, const std::vector<std::string>& made) try {
  remove_parts(parts, made);
} catch (const Error& e) {
  for (const std::string& line : e.lines) warn(line);
}

}  // namespace mxfp4
