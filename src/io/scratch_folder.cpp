#include "src/io/scratch_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.h"
#include "src/base/process.h"
#include "src/io/journal.h"

namespace mxfp4 {

namespace {

constexpr const char* scratch_prefix = "mxfp4-pack.";

std::string temporary_place() {
  const std::string place = environment_text("TMPDIR");
  return place.starts_with('/') ? place : "/tmp";
}

/// Removes a folder if the program that made it has ended: a maker locks the folder itself. A folder with anything else
/// in it than a maker puts there stays.
void remove_if_abandoned(const Folder& above, const std::string& name) {
  const Folder folder = above.find(name);
  if (!folder || !folder.is_own() || !folder.is_private()) return;
  const std::vector<std::string> names = names_in_folder(folder);
  if (names.size() > 1 || (names.size() == 1 && names[0] != ScratchFolder::only_name)) return;
  const Fd lock = above.open(name, O_RDONLY | O_DIRECTORY);
  if (lock && take_lock(lock) == Lock::taken) remove_tree(above, name);
}

void remove_abandoned(const std::string& place) {
  const Folder above = Folder::try_open(place);
  if (!above) return;
  for (const std::string& name : names_in_folder(above, Unreadable::skip)) try {
      if (name.starts_with(scratch_prefix)) remove_if_abandoned(above, name);
    } catch (const std::exception&) {  // another program may be removing it
    }
}

bool is_at(const std::string& path, const Fd& folder) {
  struct stat there;
  return ::lstat(path.c_str(), &there) == 0 && identity_of(there) == identity_of(folder.stat());
}

}  // namespace

ScratchFolder::ScratchFolder() {
  const std::string place = temporary_place();
  remove_abandoned(place);
  do {  // again if another program has taken it for abandoned, before it was locked
    path_ = place + "/" + scratch_prefix + "XXXXXX";
    if (!::mkdtemp(path_.data())) fail_errno(path_, "cannot create", errno);
    lock_ = Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), path_);
    if (!lock_ && errno != ENOENT) fail_errno(path_, "cannot open", errno);
  } while (!lock_ || take_lock(lock_) == Lock::held || !is_at(path_, lock_));
}

ScratchFolder::~ScratchFolder() {
  try {
    const size_t slash = path_.rfind('/');
    if (const Folder above = Folder::try_open(path_.substr(0, slash))) remove_tree(above, path_.substr(slash + 1));
  } catch (const std::exception&) {  // the next ScratchFolder removes it
  }
}

}  // namespace mxfp4
