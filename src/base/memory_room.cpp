#include "src/base/memory_room.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/base/file.h"

namespace mxfp4 {

namespace {

namespace fs = std::filesystem;

constexpr int64_t unlimited = INT64_MAX;

/// The files of one version of memory cgroups that contain a group's limit and use.
struct Names {
  const char* limits[2];
  const char *usage, *cached[2];  // cached: rows of memory.stat
};
constexpr Names v1 = {
    {"memory.limit_in_bytes", nullptr}, "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};
constexpr Names v2 = {{"memory.max", "memory.high"}, "memory.current", {"active_file", "inactive_file"}};

/// A file that holds one number; `otherwise` if it is missing or holds a word.
int64_t number_in(const fs::path& file, int64_t otherwise) {
  std::ifstream in(file);
  int64_t number;
  return in >> number ? number : otherwise;
}

/// The number in a file's row that begins with `name`; `otherwise` if there is none.
int64_t number_after(const fs::path& file, const std::string& name, int64_t otherwise) {
  std::ifstream in(file);
  for (std::string row; std::getline(in, row);) {
    std::istringstream words(row);
    std::string first;
    if (int64_t number; words >> first && first == name && words >> number) return number;
  }
  return otherwise;
}

/// The memory that one cgroup's limits leave free. Cached pages of files count as free, because the kernel drops them
/// first.
int64_t room_in(const fs::path& group, const Names& names) {
  int64_t limit = unlimited;
  for (const char* name : names.limits)
    if (name) limit = std::min(limit, number_in(group / name, unlimited));
  if (limit == unlimited) return unlimited;
  int64_t used = number_in(group / names.usage, 0);
  for (const char* name : names.cached) used -= number_after(group / "memory.stat", name, 0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used));
}

/// A mounted hierarchy of cgroups: its folder, and the group that this folder stands for.
struct Mount {
  std::string group, folder;
  bool is_v2 = false, has_memory = false;
};

/// A row of mountinfo: ID PARENT DEVICE GROUP FOLDER OPTION.. - TYPE SOURCE OPTIONS
Mount read_mount(const std::string& row) {
  std::istringstream words(row);
  std::string skipped, type, options;
  Mount m;
  words >> skipped >> skipped >> skipped >> m.group >> m.folder;
  while (words >> skipped && skipped != "-") continue;
  words >> type >> skipped >> options;
  m.is_v2 = type == "cgroup2";
  m.has_memory = m.is_v2 || (type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos);
  return m;
}

/// This process's group in a hierarchy; empty if there is none. A row: ID:CONTROLLERS:GROUP
std::string own_group(const std::string& root, bool is_v2) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string row; std::getline(in, row);) {
    const size_t first = row.find(':'), second = row.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = row.substr(first + 1, second - first - 1);
    const bool is_wanted =
        is_v2 ? controllers.empty() : ("," + controllers + ",").find(",memory,") != std::string::npos;
    if (is_wanted) return row.substr(second + 1);
  }
  return {};
}

int64_t room_in_hierarchy(const std::string& root, const Mount& mount) {
  const fs::path group = own_group(root, mount.is_v2), top = root + mount.folder;
  // In a container the mount may be its group's alone, and the group's name that of the host.
  fs::path at = top;
  if (is_below(group, mount.group)) at = (top / group.lexically_relative(mount.group)).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  int64_t room = unlimited;
  for (; is_below(at, top); at = at.parent_path()) room = std::min(room, room_in(at, mount.is_v2 ? v2 : v1));
  return room;
}

}  // namespace

int64_t memory_room(const std::string& root) {
  const int64_t kib = number_after(root + "/proc/meminfo", "MemAvailable:", -1);
  int64_t room = kib < 0 ? unlimited : kib * 1024;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string row; std::getline(mounts, row);)
    if (const Mount mount = read_mount(row); mount.has_memory) room = std::min(room, room_in_hierarchy(root, mount));
  return room;
}

}  // namespace mxfp4
