#include "src/output.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "src/error.h"
#include "src/log.h"
#include "src/pipeline.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

bool contains(const fs::path& dir, const fs::path& path) {
  const auto [end, rest] = std::mismatch(dir.begin(), dir.end(), path.begin(), path.end());
  return end == dir.end();
}

void check_apart(const std::string& out, const fs::path& place, const std::string& source) {
  if (source.empty()) return;
  const fs::path real = fs::canonical(source);
  if (place == real) fail(Kind::usage, "{}: is the source itself; nothing is converted in place", out);
  if (contains(real, place)) fail(Kind::usage, "{}: lies inside the source {}; choose another place", out, source);
  if (contains(place, real)) fail(Kind::usage, "{}: holds the source {}; choose another place", out, source);
}

/// Only a directory in which every file was made by this tool may go.
void check_replaceable(const std::string& out, const fs::path& place, const OutputDir::Made& made) {
  if (fs::is_directory(place) && fs::is_empty(place)) return;
  if (!made) fail(Kind::usage, "{}: exists; choose another place, or replace what mxfp4-pack made with --force", out);
  const std::vector<std::string> names = made(place.string());
  if (names.empty()) fail(Kind::usage, "{}: exists and was not made by mxfp4-pack; choose another place", out);
  const std::set<std::string> ours(names.begin(), names.end());
  for (const auto& entry : fs::recursive_directory_iterator(place))
    if (!entry.is_directory() && !ours.count(entry.path().lexically_relative(place).string()))
      fail(Kind::usage, "{}: {} was not made by mxfp4-pack; move it away first", out,
           printable(entry.path().lexically_relative(place).string()));
}

void sync_dir(const fs::path& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno(dir.string(), "cannot open", errno);
  const int result = ::fsync(fd), error = errno;
  ::close(fd);
  if (result != 0 && error != EINVAL) fail_errno(dir.string(), "cannot sync to disk", error);
}

/// Swaps two directories in one step where the file system can; else moves `old` to `aside` first.
void swap_directories(const std::string& fresh, const std::string& old, const std::string& aside) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) fail_errno(old, "cannot replace", errno);
  if (::rename(old.c_str(), aside.c_str()) != 0) fail_errno(old, "cannot move aside", errno);
  if (::rename(fresh.c_str(), old.c_str()) != 0) fail_errno(old, "cannot rename into place", errno);
}

/// Where OUT is to stand: absolute, without links.
std::string place_of(const std::string& out, const std::string& source) {
  std::error_code ec;
  fs::path place = fs::weakly_canonical(fs::absolute(out), ec);
  if (ec) fail_errno(out, "cannot resolve", ec.value());
  if (!place.has_filename()) place = place.parent_path();
  if (fs::is_symlink(fs::symlink_status(out))) fail(Kind::usage, "{}: is a link; give the place itself", out);
  check_apart(out, place, source);
  if (!fs::is_directory(place.parent_path()))
    fail(Kind::io, "{}: the folder {} does not exist", out, place.parent_path().string());
  return place.string();
}

std::string hidden_beside(const fs::path& place, const char* what) {
  return (place.parent_path() / fmt::format(".{}.mxfp4-pack.{}", place.filename().string(), what)).string();
}

/// 0 where there is none.
uint64_t inode_of(const std::string& path) {
  struct stat s;
  return ::lstat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode) ? s.st_ino : 0;
}

}  // namespace

OutputDir::OutputDir(Place place, const std::string& out)
    : out_(place.path),
      partial_(hidden_beside(place.path, "partial")),
      journal_(hidden_beside(place.path, "journal"), out),
      leftover_(!journal_.records().empty()) {}

OutputDir::OutputDir(const std::string& out, const std::string& source, const Made& made, const Start& start)
    : OutputDir(Place{place_of(out, source)}, out) {
  keep_ = journal_.begun() && take_over(out, start);
  if (!committed_ && fs::exists(out_)) {
    check_replaceable(out, out_, made);
    replace_ = true;
  }
  leftover_ = false;
  if (!committed_ && !keep_) begin(start);
}

/// What to do about the journal of an earlier run: true where this run goes on with what is there.
bool OutputDir::take_over(const std::string& out, const Start& start) {
  const JournalHead& head = journal_.head();
  const bool same = head.options == start.options && head.source == start.source;
  if (head.directory == inode_of(out_)) {  // it was cut short after the rename
    remove_replaced();
    committed_ = same && start.leftover == Leftover::resume;
    return false;
  }
  if (journal_.records().empty() || head.directory != inode_of(partial_) || start.leftover == Leftover::discard)
    return false;
  if (start.leftover == Leftover::refuse)
    fail(Kind::usage, "{}: a partial output is there; go on with convert --resume, or begin anew with --restart", out);
  if (!same)
    fail(Kind::usage, "{}: the partial output was begun {}; begin anew with --restart", out,
         head.source != start.source ? "from another source, or the source has changed"
                                     : "with other options or another version");
  return true;
}

void OutputDir::begin(const Start& start) {
  std::error_code ec;
  journal_.clear();
  fs::remove_all(partial_, ec);
  if (!fs::create_directory(partial_, ec)) fail_errno(partial_, "cannot create", ec ? ec.value() : EEXIST);
  journal_.begin({start.options, start.source, inode_of(partial_)});
}

OutputDir::~OutputDir() {
  if (committed_ || leftover_) return;
  if (keep_ && !journal_.records().empty()) {
    note(fmt::format("{}: {} finished jobs are kept; go on with --resume, or begin anew with --restart", out_,
                     journal_.records().size()));
    return;
  }
  std::error_code ec;
  fs::remove_all(partial_, ec);
  journal_.remove();
}

std::string OutputDir::path(const std::string& name) const {
  const fs::path p = fs::path(partial_) / name;
  std::error_code ec;
  fs::create_directories(p.parent_path(), ec);
  if (ec) fail_errno(p.parent_path().string(), "cannot create", ec.value());
  return p.string();
}

Fd OutputDir::create(const std::string& name, int64_t bytes) const {
  Fd fd = open_update(path(name), name);
  if (fd.stat().st_size != bytes && ::ftruncate(fd.get(), bytes) != 0) fail_errno(name, "cannot set its size", errno);
  if (bytes == 0 || is_in_memory(fd)) return fd;  // there it costs what writing does, and one thread would do it all
  while (::fallocate(fd.get(), 0, 0, bytes) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) break;
    if (errno != EINTR) fail_errno(name, "cannot reserve space", errno);
    throw_if_interrupted();
  }
  return fd;
}

void OutputDir::check_space(int64_t bytes) const {
  struct statvfs s;
  if (::statvfs(partial_.c_str(), &s) != 0) fail_errno(partial_, "cannot ask for free space", errno);
  auto free = int64_t(s.f_bavail) * int64_t(s.f_frsize);
  for (const auto& entry : fs::recursive_directory_iterator(partial_))  // what is kept has its space
    if (struct stat file; ::lstat(entry.path().c_str(), &file) == 0 && file.st_nlink == 1)
      free += int64_t(file.st_blocks) * 512;
  if (free < bytes)
    fail(Kind::io, "{}: {} needed, {} free", fs::path(out_).parent_path().string(), human_bytes(bytes),
         human_bytes(free));
}

void OutputDir::rename_into_place() {
  if (replace_) return swap_directories(partial_, out_, partial_ + ".old");
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, out_.c_str(), RENAME_NOREPLACE) == 0) return;
  if ((errno != EINVAL && errno != ENOSYS) || ::rename(partial_.c_str(), out_.c_str()) != 0)
    fail_errno(out_, "cannot rename into place", errno);
}

void OutputDir::commit() {
  if (!committed_) {
    for (const auto& entry : fs::recursive_directory_iterator(partial_))
      if (entry.is_directory()) sync_dir(entry.path());
    sync_dir(partial_);
    rename_into_place();
    committed_ = true;
    sync_dir(fs::path(out_).parent_path());
  }
  if (replace_) remove_replaced();
  journal_.remove();
}

void OutputDir::remove_replaced() {
  std::error_code ec;
  fs::remove_all(partial_, ec);
  fs::remove_all(partial_ + ".old", ec);
}

}  // namespace mxfp4
