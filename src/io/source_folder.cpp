#include "src/io/source_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "src/base/error.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int to_read = O_RDONLY | O_NONBLOCK | O_NOCTTY;

int try_to_open(int folder, const std::string& name, int flags) {
  int fd;
  do fd = ::openat(folder, name.c_str(), flags | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  return fd;
}

std::string resolved(const fs::path& path) {
  std::error_code ec;
  const fs::path all = fs::canonical(path, ec);
  return ec ? std::string() : all.string();
}

bool is_same(const struct stat& a, const struct stat& b) { return identity_of(a) == identity_of(b); }

/// Whether a name is a hash, as blobs in the Hugging Face cache have. Private files rarely have such names.
bool is_blob_name(const std::string& name) {
  return (name.size() == 40 || name.size() == 64) && name.find_first_not_of("0123456789abcdef") == name.npos;
}

/// Whether a file that could not be opened exists.
bool is_unread(int error) { return error != ENOENT && error != ENOTDIR && error != EBADF && error != ELOOP; }

std::string why_unread(int error) { return "cannot be read: " + std::generic_category().message(error); }

std::string why_not_found(const Folder& folder, const std::string& name, int error) {
  const auto target = folder ? folder.link_target(name) : std::nullopt;
  if (error == ELOOP) return "a link that leads to itself; remove it";
  return target ? fmt::format("broken link to {}; incomplete copy?", *target) : "missing; incomplete copy?";
}

}  // namespace

SourceFolder::SourceFolder(const std::string& dir, Links links) : SourceFolder(Folder::try_open(dir), links) {}

SourceFolder::SourceFolder(Folder held, Links links) : links_(links), folder_(std::move(held)) {
  const int error = errno;
  if (folder_) permitted_.add(folder_);
  errno = error;
}

/// The path of an opened file; empty if somebody has exchanged a folder or link on the way.
std::string SourceFolder::place_of(const Fd& found, const std::string& name) const {
  if (std::string place = found.current_path(); !place.empty()) return place;
  std::string place = resolved(fs::path(folder_.path()) / name);
  struct stat s;
  const bool same = !place.empty() && ::lstat(place.c_str(), &s) == 0 && is_same(s, found.stat());
  return same ? place : std::string();
}

bool SourceFolder::may_follow(const std::string& place) const {
  if (links_ == Links::follow) return true;
  const std::string own = folder_.current_path();
  const fs::path dir = own.empty() ? resolved(folder_.path()) : own;
  if (is_below(place, dir)) return true;
  const fs::path snapshots = dir.parent_path();
  if (snapshots.filename() != "snapshots") return false;
  const fs::path name = snapshots.parent_path() / "blobs";
  const std::string blobs = resolved(name);
  if (blobs.empty() || !is_below(place, blobs)) return false;
  std::error_code ec;
  return !fs::is_symlink(fs::symlink_status(name, ec)) || is_blob_name(fs::path(place).filename().string());
}

/// Opens the file that was found, and no other. On error returns none and sets errno.
Fd SourceFolder::open_found(const Fd& found, const std::string& name) const {
  Fd file(try_to_open(AT_FDCWD, found.proc_path(), to_read), name);
  if (file || errno != ENOENT) return file;
  file = Fd(try_to_open(folder_.fd(), name, to_read), name);  // without /proc
  if (file && !is_same(file.stat(), found.stat())) return errno = ESTALE, Fd();
  return file;
}

/// False if the file is no longer in its folder.
bool SourceFolder::add_permitted(const Fd& file, const std::string& place) const {
  const fs::path path = place, own = folder_.current_path(), above = path.parent_path();
  const std::string name = path.filename().string();
  const bool is_direct = above == own, is_within = !own.empty() && is_below(above, own);
  Folder at = is_direct   ? folder_.again()
              : is_within ? folder_.find(above.lexically_relative(own).string())
                          : Folder::try_open(above.string());
  const auto there = at ? at.look(name) : std::nullopt;
  if (!there || !is_same(*there, file.stat())) return false;
  const std::lock_guard lock(mutex_);
  permitted_.add(file);
  if (is_direct) return true;
  if (known_.empty()) known_ = folders_above(folder_);
  for (; at && known_.insert(identity_of(at.stat())).second; at = at.parent()) permitted_.add(at);
  return true;
}

Fd SourceFolder::open(const std::string& name, Problems& problems) const {
  const Fd found(try_to_open(folder_.fd(), name, O_PATH), name);
  const int error = errno;
  if (!found && is_unread(error)) return problems.unread(name, why_unread(error)), Fd();
  if (!found) return problems.error(name, "{}", why_not_found(folder_, name, error)), Fd();
  const std::string place = place_of(found, name);
  if (!place.empty() && !may_follow(place))
    return problems.error(name, "links outside the directory, to {}{}", printable(place),
                          links_ == Links::offer ? "; give --follow-links to read it" : ""),
           Fd();
  if (!S_ISREG(found.stat().st_mode)) return problems.error(name, "not a regular file"), Fd();
  Fd file = open_found(found, name);
  if (!file && errno != ESTALE) return problems.unread(name, why_unread(errno)), Fd();
  if (!file || place.empty() || !add_permitted(file, place))
    return problems.error(name, "changed while it was opened; start again"), Fd();
  return file;
}

std::string SourceFolder::text(const std::string& name, int64_t limit, Problems& problems) const {
  Fd file = open(name, problems);
  return file ? read_text(limited(std::move(file), limit)) : std::string();
}

bool SourceFolder::leads_out(const std::string& name) const {
  const Fd found(try_to_open(folder_.fd(), name, O_PATH), name);
  const std::string place = found ? place_of(found, name) : "";
  return !place.empty() && !may_follow(place);
}

Permitted SourceFolder::permitted() const {
  const std::lock_guard lock(mutex_);
  if (folder_) permitted_.add(folder_);  // its owner may have closed it since
  return permitted_;
}

}  // namespace mxfp4
