#include "src/io/swap.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <cerrno>
#include <cstdio>

#include "src/base/error.h"

namespace mxfp4 {

bool swap_at_once(const Folder& above, const std::string& fresh, const std::string& name) {
  const int error = above.rename(fresh, above, name, RENAME_EXCHANGE);
  if (error != 0 && error != EINVAL && error != ENOSYS) fail_errno(above.path(name), "cannot replace", error);
  return error == 0;
}

void swap_folders(const Folder& above, const std::string& fresh, const std::string& name, const std::string& aside) {
  if (swap_at_once(above, fresh, name)) return;
  if (const int error = above.rename(name, above, aside)) fail_errno(above.path(name), "cannot move aside", error);
  if (const int error = above.rename(fresh, above, name))
    fail_errno(above.path(name), "cannot rename into place", error);
}

void rename_to(const Folder& above, const std::string& from, const std::string& to) {
  int error = above.rename(from, above, to, RENAME_NOREPLACE);
  if (error == EINVAL || error == ENOSYS) error = above.rename(from, above, to);
  if (error != 0) fail_errno(above.path(to), "cannot rename into place", error);
}

void check_movable(const Folder& above, const std::string& name, const std::string& partial, const std::string& out) {
  struct statfs s;
  const Folder folder = above.find(name);
  if (!folder || ::fstatfs(folder.fd(), &s) != 0 || s.f_type != OVERLAYFS_SUPER_MAGIC) return;
  if (above.rename(name, above, partial) == EXDEV)
    fail(ErrorKind::usage,
         "{}: is in a lower layer of overlayfs, as of a container's image, and cannot be replaced; "
         "choose another place",
         out);
}

}  // namespace mxfp4
