#include "src/base/folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

void fail_to(const char* action, const fs::path& path, int error) {
  if (error == ENOMEM) throw std::bad_alloc();
  throw fs::filesystem_error(action, path, std::error_code(error, std::generic_category()));
}

struct Close {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

/// errno of the first call that failed; 0 where none did.
int read_names(const fs::path& folder, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (!open) return errno;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (!entry) return errno;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

void walk_below(const fs::path& folder, const std::string& prefix, const std::function<bool(const Entry&)>& visit,
                Unreadable unreadable) {
  for (const std::string& name : names_in_folder(folder, unreadable)) {
    Entry entry{prefix + name, folder / name};
    struct stat s;
    if (::lstat(entry.path.c_str(), &s) != 0) {
      if (errno == ENOENT || (errno != ENOMEM && unreadable == Unreadable::skip)) continue;
      fail_to("cannot read", entry.path, errno);
    }
    entry.mode = s.st_mode;
    if (visit(entry) && entry.is_folder()) walk_below(entry.path, entry.name + "/", visit, unreadable);
  }
}

}  // namespace

std::vector<std::string> names_in_folder(const fs::path& folder, Unreadable unreadable) {
  std::vector<std::string> names;
  const int error = read_names(folder, names);
  if (error == ENOMEM || (error != 0 && unreadable == Unreadable::fail)) fail_to("cannot read", folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_empty_folder(const fs::path& folder) { return names_in_folder(folder).empty(); }

void walk(const fs::path& folder, const std::function<bool(const Entry&)>& visit, Unreadable unreadable) {
  walk_below(folder, "", visit, unreadable);
}

std::vector<Entry> entries_below(const fs::path& folder, Unreadable unreadable) {
  std::vector<Entry> entries;
  walk(
      folder, [&](const Entry& entry) { return entries.push_back(entry), true; }, unreadable);
  return entries;
}

void remove_tree(const fs::path& path) {
  const auto remove = [](const fs::path& one) {
    if (::remove(one.c_str()) != 0 && errno != ENOENT) fail_to("cannot remove", one, errno);
  };
  if (struct stat s; ::lstat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode)) {
    const std::vector<Entry> entries = entries_below(path);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) remove(entry->path);  // what is inside first
  }
  remove(path);
}

}  // namespace mxfp4
