#include "src/io/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/process.h"

namespace mxfp4 {

namespace {

constexpr const char* scratch_prefix = "mxfp4-pack.";
constexpr const char* scratch_lock = "lock";

std::string temporary_place() {
  const std::string place = environment_text("TMPDIR");
  return place.starts_with('/') ? place : "/tmp";
}

/// Whether the program that made a folder has ended. A folder without its lock may be in the making.
bool is_abandoned(const Folder& folder) {
  if (!folder || !folder.is_own() || !folder.is_private()) return false;
  if (!folder.has_file(scratch_lock)) return false;
  const Fd lock = folder.open(scratch_lock, O_RDONLY | O_NONBLOCK);
  return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

void remove_abandoned(const std::string& place) {
  const Folder above = Folder::try_open(place);
  if (!above) return;
  for (const std::string& name : names_in_folder(above, Unreadable::skip)) try {
      if (name.starts_with(scratch_prefix) && is_abandoned(above.find(name))) remove_tree(above, name);
    } catch (const std::exception&) {  // another program may be removing it
    }
}

}  // namespace

ScratchFolder::ScratchFolder() : path_(temporary_place() + "/" + scratch_prefix + "XXXXXX") {
  remove_abandoned(temporary_place());
  if (!::mkdtemp(path_.data())) fail_errno(path_, "cannot create", errno);
  lock_ = Fd(::open((path_ + "/" + scratch_lock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), path_);
  if (!lock_) fail_errno(path_, "cannot create a file in", errno);
  ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

ScratchFolder::~ScratchFolder() {
  try {
    const size_t slash = path_.rfind('/');
    if (const Folder above = Folder::try_open(path_.substr(0, slash))) remove_tree(above, path_.substr(slash + 1));
  } catch (const std::exception&) {  // the next ScratchFolder removes it
  }
}

}  // namespace mxfp4
