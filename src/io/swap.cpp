#include "src/io/swap.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <cerrno>
#include <cstdio>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

bool swap_at_once(const Entrance& fresh, const Entrance& to) {
  const int error = fresh.folder.rename(fresh.name, to.folder, to.name, RENAME_EXCHANGE);
  if (error != 0 && error != EINVAL && error != ENOSYS) fail_errno(to.folder.path(to.name), "cannot replace", error);
  return error == 0;
}

}  // namespace

void swap_folders(const Entrance& fresh, const Entrance& to, const std::string& aside) {
  if (swap_at_once(fresh, to)) return;
  if (const int error = to.folder.rename(to.name, fresh.folder, aside))
    fail_errno(to.folder.path(to.name), "cannot move aside", error);
  if (const int error = fresh.folder.rename(fresh.name, to.folder, to.name))
    fail_errno(to.folder.path(to.name), "cannot rename into place", error);
}

void rename_to(const Entrance& from, const Entrance& to) {
  int error = from.folder.rename(from.name, to.folder, to.name, RENAME_NOREPLACE);
  if (error == EINVAL || error == ENOSYS) error = from.folder.rename(from.name, to.folder, to.name);
  if (error != 0) fail_errno(to.folder.path(to.name), "cannot rename into place", error);
}

void check_movable(const Entrance& from, const Entrance& taken, const std::string& out) {
  struct statfs s;
  const Folder folder = from.folder.find(from.name);
  if (!folder || ::fstatfs(folder.fd(), &s) != 0 || s.f_type != OVERLAYFS_SUPER_MAGIC) return;
  if (from.folder.rename(from.name, taken.folder, taken.name) == EXDEV)
    fail(ErrorKind::usage,
         "{}: is in a lower layer of overlayfs, as of a container's image, and cannot be replaced; "
         "choose another place",
         out);
}

}  // namespace mxfp4
