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
#include <regex>
#include <set>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/number.h"
#include "src/base/process.h"
#include "src/io/leftover.h"
#include "src/io/merge_claim.h"

namespace mxfp4 {

namespace {

constexpr int most_parts = 1'000'000;

/// The host's name, with `_` for characters that part names do not allow.
std::string host_name() {
  char name[65] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "host";
  std::string text = name;
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  return text;
}

/// Whether a folder among the parts is a finished part. The staging directory of a part may have a record as well, so
/// hidden names do not count.
bool has_record(const Folder& parts, const std::string& name) {
  if (!name_behind(name).empty()) return false;
  const Folder part = parts.find(name);
  return part && part.is_own() && part.has_file(part_record);
}

PartFolder read_part(const Folder& parts, const std::string& name) {
  PartFolder part;
  part.name = name;
  part.record = read_journal(open_read(parts.find(name), part_record));
  if (!part.record.begun) return part;
  part.command = parse_json(part.record.head.run, parts.path(name));
  const auto number = [&](const char* key) {
    const auto found = part.command.find(key);
    const bool is_number = found != part.command.end() && found->is_number_unsigned() && *found <= uint64_t(most_parts);
    return is_number ? found->get<int>() : -1;
  };
  part.number = {number("part"), number("parts")};
  return part;
}

/// Whether a name has the form of new_part_name().
bool is_part_name(const std::string& name) {
  static const std::regex pattern("[0-9]+-of-[0-9]+\\.[A-Za-z0-9_-]+\\.[0-9]+\\.[0-9a-f]+");
  return std::regex_match(name, pattern);
}

/// The head of an unfinished part's journal.
JournalHead head_of_unfinished(const Folder& stage) {
  return stage && stage.has_file(staged_journal) ? read_journal(open_read(stage, staged_journal)).head : JournalHead();
}

/// Removes an unfinished part; its journal and its staging directory last.
void remove_unfinished(const Folder& parts, const std::string& part) {
  const HeldFolder stage = find_stage(parts, part);
  remove_new({stage.folder, staged_new}, part, {}, head_of_unfinished(stage.folder));
  if (const int error = stage ? stage.folder.unlink(staged_journal) : ENOENT; error != 0 && error != ENOENT)
    fail_errno(stage.folder.path(staged_journal), "cannot remove", error);
  if (const int error = parts.rmdir(stage.name); error != 0 && error != ENOENT)
    fail_errno(parts.path(stage.name), "cannot remove", error);
}

std::string why_not_own_unfinished(const Folder& parts, const std::string& part) {
  const HeldFolder stage(parts, stage_beside(part));
  std::string why = why_no_stage(stage);
  if (why.empty()) why = why_not_ours({stage.folder, staged_new}, part, {}, head_of_unfinished(stage.folder));
  return why.empty() ? "" : fmt::format("{}: {}", parts.path(stage.name), why);
}

/// The part's own files. made: used if the part's record does not list them.
std::set<std::string> names_of(const JournalText& record, const std::vector<std::string>& made) {
  const std::vector<std::string>& own = record.begun ? record.head.made : made;
  std::set<std::string> names(own.begin(), own.end());
  names.insert({run_file, part_record});  // run_file: it may be left if its removal failed
  return names;
}

std::string why_not_own_part(const Folder& parts, const PartFolder& part, const std::vector<std::string>& made) {
  const std::string foreign = printable(foreign_in(parts.find(part.name), names_of(part.record, made)));
  if (foreign.empty()) return {};
  return fmt::format("{}: {}{}", parts.path(part.name), foreign,
                     part.record.begun ? " was not made by mxfp4-pack"
                                       : fmt::format(": {} does not say what is mxfp4-pack's", part_record));
}

void remove_part(const Folder& parts, const std::string& name, const std::vector<std::string>& made) {
  if (!has_record(parts, name)) return;
  const PartFolder part = read_part(parts, name);
  if (const std::string why = why_not_own_part(parts, part, made); !why.empty())
    fail(ErrorKind::usage, "{}; move it away", why);
  remove_own({parts, name}, names_of(part.record, made), part_record);
}

/// Whether a name is an empty folder with a part's name: the rest of an interrupted removal.
bool is_rest_of_part(const Folder& parts, const std::string& name) {
  if (!is_part_name(name)) return false;
  const Folder rest = parts.find(name);
  return rest && rest.is_own() && snapshot_of(rest).empty();
}

/// Whether another process has removed an open folder. A file server may no longer know it.
bool is_removed(const Folder& folder) try { return folder.stat().st_nlink == 0; } catch (const Error&) {
  return true;
}

/// The names in a folder of parts; finished parts come first. None if another process has removed the folder.
std::vector<std::string> names_in(const Folder& parts) {
  if (!parts) return {};
  std::vector<std::string> names;
  try {
    names = names_in_folder(parts);
  } catch (const Error&) {
    if (!is_removed(parts)) throw;
  }
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return has_record(parts, name); });
  return names;
}

/// Removes an entry of the folder of parts.
void remove_entry(const Folder& parts, const std::string& name, const std::vector<std::string>& made) {
  const std::string part = name_behind(name);
  if (has_record(parts, name))
    remove_part(parts, name, made);
  else if (is_part_name(part))
    remove_unfinished(parts, part);
  else if (is_claim(parts, name))
    remove_tree(parts, name);
  else if (is_rest_of_part(parts, name))
    remove_own({parts, name}, {}, {});
  else if (parts.has(name))
    fail(ErrorKind::usage, "{} was not made by mxfp4-pack; move it away", parts.path(name));
}

}  // namespace

std::string process_name() { return fmt::format("{}.{}", host_name(), ::getpid()); }

std::optional<bool> runs(const std::string& process) {
  const size_t dot = process.rfind('.');
  if (dot == process.npos || process.substr(0, dot) != host_name()) return {};
  return is_running(pid_t(whole_number(process.substr(dot + 1))));
}

std::string random_digits() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string new_part_name(const PartNumber& part) {
  return fmt::format("{}-of-{}.{}.{}", part.index, part.count, process_name(), random_digits());
}

std::string why_of_another(const PartFolder& part, const std::string& place) {
  const std::string own = printable(place), of = part.record.begun ? part.command.value("place", "") : own;
  return of == own ? "" : fmt::format("is a part of {}", printable(of));
}

std::string run_of(const PartNumber& number, const std::string& place, Json command) {
  command["part"] = number.index;
  command["place"] = printable(place);
  command["parts"] = number.count;
  return one_line(command);
}

HeldFolder parts_beside(const Place& place) { return {find_stage(place.above, place.name).folder, staged_parts}; }

void check_own_parts(const HeldFolder& parts) {
  if (parts ? !parts.is_in_place() || parts.folder.is_own() : !parts.is_taken()) return;
  fail(ErrorKind::usage, "{}: not a folder of mxfp4-pack's own; move it away", parts.above.path(parts.name));
}

std::vector<PartFolder> read_parts(const HeldFolder& parts) {
  check_own_parts(parts);
  if (!parts) return {};
  std::vector<PartFolder> found;
  parts.folder.touch();  // makes a file server's client list other nodes' files again
  for (const std::string& name : names_in(parts.folder)) {
    if (!has_record(parts.folder, name)) continue;
    PartFolder part = read_part(parts.folder, name);
    const PartNumber& n = part.number;
    if (part.record.begun && n.index >= 0 && n.index < n.count) found.push_back(std::move(part));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.number.index < b.number.index; });
  return found;
}

bool is_young(const Folder& clock, const Folder& in, const std::string& name) {
  const auto s = in.look(name);
  return s && clock.touch() == 0 && clock.stat().st_mtime - s->st_mtime < young_seconds;
}

/// "HOST.PROCESS" in a name of new_part_name().
std::string writer_of(const std::string& part) {
  const size_t begin = part.find('.') + 1, end = part.rfind('.');
  return begin < end && end != part.npos ? part.substr(begin, end - begin) : "";
}

bool are_being_written(const HeldFolder& parts) {
  const std::vector<std::string> names = names_in(parts.folder);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::string part = name_behind(name);
    if (part.empty() || !runs(writer_of(part)).value_or(true)) return false;
    const Folder stage = parts.folder.find(name);
    return is_young(parts.folder, parts.folder, name) || (stage && is_young(parts.folder, stage, staged_journal));
  });
}

bool are_in_use(const HeldFolder& parts) { return parts && (are_being_written(parts) || is_claimed(parts.folder)); }

void remove_part(const HeldFolder& parts, const std::string& name) {
  if (parts) remove_part(parts.folder, name, {});
}

std::string why_not_own_parts(const HeldFolder& held, const std::vector<std::string>& made) {
  const Folder& parts = held.folder;
  for (const std::string& name : names_in(parts)) {
    const std::string part = name_behind(name);
    std::string why;
    if (has_record(parts, name)) {
      const PartFolder found = read_part(parts, name);
      why = why_of_another(found, name_behind(std::filesystem::path(held.above.path()).filename().string()));
      why = why.empty() ? why_not_own_part(parts, found, made) : fmt::format("{} {}", parts.path(name), why);
    } else if (is_part_name(part))
      why = why_not_own_unfinished(parts, part);
    else if (!is_claim(parts, name) && !is_rest_of_part(parts, name) && parts.has(name))
      why = parts.path(name) + " was not made by mxfp4-pack";
    if (!why.empty()) return why;
  }
  return {};
}

void remove_parts(const HeldFolder& parts, const std::vector<std::string>& made) {
  if (!parts || !parts.folder.is_own()) return;
  if (const std::string why = why_not_own_parts(parts, made); !why.empty())  // then nothing is removed
    fail(ErrorKind::usage, "{}; move it away", why);
  Problems problems;
  for (const std::string& name : names_in(parts.folder)) try {
      remove_entry(parts.folder, name, made);
    } catch (const std::exception&) {
      problems.add(caught());
    }
  if (problems.any()) throw Error(ErrorKind::io, problems.errors());
  if (const int error = parts.above.rmdir(parts.name); error != 0 && error != ENOENT)
    fail_errno(parts.folder.path(), "cannot remove", error);
}

void remove_merged_parts(const HeldFolder& parts, const std::vector<std::string>& made) try {
  remove_parts(parts, made);
} catch (const Error& e) {
  for (const std::string& line : e.lines) warn(line);
}

}  // namespace mxfp4
