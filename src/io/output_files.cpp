// The files of an OutputDir, and the renames that publish it.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/long_text.h"
#include "src/io/output.h"
#include "src/io/swap.h"

namespace mxfp4 {

namespace {

/// Reserves `bytes` bytes of a disk's file system for a file, if that file system can. On tmpfs, reserving costs as
/// much as writing, in one thread. On a server it may cost as much; there, free space is checked at the start, and each
/// sync reports a lack of space.
void reserve_space(const Fd& fd, int64_t bytes) {
  if (medium_of(fd) != Medium::disk) return;
  while (::fallocate(fd.get(), 0, 0, bytes) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return;
    if (errno != EINTR) fail_errno(fd.name(), "cannot reserve space", errno);
    throw_if_interrupted();
  }
}

bool reflink(const Fd& from, const Fd& to) { return ::ioctl(to.get(), FICLONE, from.get()) == 0; }

}  // namespace

const Folder& OutputDir::built() const {
  if (!new_ || !stage_->is_in_place() || !new_->is_in_place()) fail_removed();
  return new_->folder;
}

void OutputDir::make_folders(const std::string& name) const {
  for (size_t end = 0; (end = name.find('/', end)) != name.npos; ++end) {
    const std::string folder = name.substr(0, end);
    if (!built().has(folder)) built().make_or_find(folder);
  }
}

Fd OutputDir::create(const std::string& name, int64_t bytes) const {
  make_folders(name);
  Fd fd = open_own(built(), name);
  privacy_.apply(fd);
  if (bytes > 0) reserve_space(fd, bytes);  // usually sets the length as well
  if (fd.stat().st_size != bytes && ::ftruncate(fd.get(), bytes) != 0) fail_errno(name, "cannot set its size", errno);
  return fd;
}

Fd OutputDir::create_text(const std::string& name) const {
  make_folders(name);
  Fd fd = open_write(built(), name);
  privacy_.apply(fd);
  return fd;
}

void OutputDir::write_text(const std::string& name, std::string_view text) const {
  mxfp4::write_text(create_text(name), text);
}

bool OutputDir::link(const Fd& file, const std::string& name) const {
  if (reflink(file, create_text(name))) return true;
  built().unlink(name);
  return built().link_file(file, name) == 0;
}

int OutputDir::link_from(const Folder& from, const std::string& name) const {
  make_folders(name);
  return from.link(name, built(), name);
}

void OutputDir::copy_from(const Folder& from, const std::string& name) const {
  make_folders(name);
  if (const auto target = from.link_target(name)) {
    if (const int error = built().symlink(*target, name)) fail_errno(name, "cannot copy", error);
    return;
  }
  const Fd source = open_read(from, name), copy = create_text(name);
  Privacy::keep(copy, source);
  int64_t at = 0;
  give_text(source, [&](std::string_view block) {
    copy.write(block.data(), int64_t(block.size()), at);
    at += int64_t(block.size());
  });
  copy.sync();
}

void OutputDir::take(const Folder& from, const std::string& name) const {
  make_folders(name);
  if (const Fd file = from.open(name, O_RDONLY | O_NONBLOCK); file && file.stat().st_nlink == 1) privacy_.apply(file);
  if (const int error = from.rename(name, built(), name)) fail_errno(from.path(name), "cannot move", error);
}

/// Exchanges the directory with the output that it replaces, which old_ then names in the staging directory. Needs no
/// memory after the exchange.
void OutputDir::swap_into_place() {
  const Entrance from{stage_->folder, staged_new}, aside{stage_->folder, staged_old}, to{place_.above, place_.name};
  HeldFolder& old = *old_;
  Folder above = stage_->folder.again();
  const mode_t mode = old.folder.make_writable();
  if (!old.is_in_place()) fail_changed();
  try {
    swap_folders(from, to, aside.name);
  } catch (...) {
    old.folder.set_mode(mode);
    throw;
  }
  const bool is_swapped = old.folder.is_at(above, from.name);
  if (!is_swapped && !old.folder.is_at(above, aside.name)) {  // another process replaced it just before the swap
    swap_folders(above.has(aside.name) ? aside : from, to, aside.name);
    fail_changed();
  }
  committed_ = true;
  old.above = std::move(above);
  old.name = is_swapped ? from.name : aside.name;
}

void OutputDir::rename_into_place() {
  mode_ = new_->folder.make_writable();  // only a directory that can be written may move to another folder
  if (replace_)
    swap_into_place();
  else
    rename_to({stage_->folder, staged_new}, {place_.above, place_.name});
  committed_ = true;
  if (!new_->folder.is_at(place_.above, place_.name))
    fail(ErrorKind::io, "{}: another user has moved the finished output; it is not at its place", name_);
}

}  // namespace mxfp4
