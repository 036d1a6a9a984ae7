#include "src/io/link.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.h"
#include "src/base/file.h"

namespace mxfp4 {

namespace {

bool reflink(const std::string& from, const std::string& to) {
  const Fd source = open_read(from), target = open_write(to);
  return ::ioctl(target.get(), FICLONE, source.get()) == 0;
}

bool hard_link(const std::string& from, const std::string& to) {
  return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

bool link_file(Link how, const std::string& from, const std::string& to) {
  if (how == Link::none) return false;
  ::unlink(to.c_str());
  if (how != Link::hard) {
    if (reflink(from, to)) return true;
    if (how == Link::reflink) fail_errno(to, "cannot reflink", errno);
    ::unlink(to.c_str());
  }
  if (hard_link(from, to)) return true;
  if (how == Link::hard) fail_errno(to, "cannot hard-link", errno);
  return false;
}

}  // namespace mxfp4
