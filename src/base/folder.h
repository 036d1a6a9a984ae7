// What folders hold. To be used in the place of std::filesystem's iterators and of is_empty() and remove_all(), which
// are made of them: libstdc++ 13 and later build the path of an entry in a function that must not throw, so that an
// allocation that fails there ends the program.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace mxfp4 {

/// Of a folder that is walked, or of one below it. Links are not followed.
struct Entry {
  std::string name;  // relative to the folder that is walked: "packed/model-00001.safetensors"
  std::filesystem::path path;
  mode_t mode = 0;  // lstat's
  bool is_folder() const { return S_ISDIR(mode); }
  bool is_file() const { return S_ISREG(mode); }
  bool is_link() const { return S_ISLNK(mode); }
};

/// What to do at a folder that cannot be read: throw std::filesystem::filesystem_error, or go on without it. Where
/// memory is short, both throw std::bad_alloc.
enum class Unreadable { fail, skip };

/// The names in a folder, sorted.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder, Unreadable unreadable = Unreadable::fail);
bool is_empty_folder(const std::filesystem::path& folder);

/// Calls visit for all entries below a folder, by name, folders before what is in them; a folder is entered, after
/// that, where visit returns true. An entry that vanishes before its visit is passed over.
void walk(const std::filesystem::path& folder, const std::function<bool(const Entry&)>& visit,
          Unreadable unreadable = Unreadable::fail);
/// All of them.
std::vector<Entry> entries_below(const std::filesystem::path& folder, Unreadable unreadable = Unreadable::fail);

/// Removes a file or a folder and all that is in it; links are not followed. What is not there is no error.
void remove_tree(const std::filesystem::path& path);

}  // namespace mxfp4
