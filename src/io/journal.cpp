#include "src/io/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/signals.h"

namespace mxfp4 {

namespace {

constexpr const char* any_mark = "mxfp4-pack-journal-";
constexpr const char* mark = "mxfp4-pack-journal-2";
constexpr const char* finished = "finished";
constexpr int64_t max_bytes = int64_t(4) << 30;

/// False: another process holds it.
bool take_lock(const Fd& fd, const std::string& out) {
  int result;
  do result = ::flock(fd.get(), LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) fail_errno(fd.name(), "cannot lock", errno);
  warn(fmt::format("{}: this file system has no locks; let no other run write here", out));
  return true;
}

/// In a folder where others can write too, the name may be somebody else's.
Fd open_journal(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (fd < 0 && errno == ELOOP) fail(ErrorKind::usage, "{}: is a link; remove it", path);
  if (fd < 0) fail_errno(path, "cannot create", errno);
  Fd file(fd, path);
  const struct stat s = file.stat();
  if (!S_ISREG(s.st_mode) || s.st_nlink > 1)
    fail(ErrorKind::usage, "{}: not a file of mxfp4-pack's own; remove it", path);
  if (s.st_uid != ::geteuid()) fail(ErrorKind::usage, "{}: belongs to another user, whose run may be going on", path);
  if (s.st_size > max_bytes) fail(ErrorKind::input, "{}: {} bytes, at most {} expected", path, s.st_size, max_bytes);
  return file;
}

bool is_file_at(const Fd& fd, const std::string& path) {
  struct stat here, there = fd.stat();
  return ::lstat(path.c_str(), &here) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

}  // namespace

Journal::Journal(std::string path, const std::string& out) : path_(std::move(path)) {
  do {  // again where the run that held it has ended and removed it meanwhile
    fd_ = open_journal(path_);
    if (!take_lock(fd_, out)) fail(ErrorKind::usage, "{}: another run of mxfp4-pack is writing it", out);
  } while (!is_file_at(fd_, path_));
  read();
  if (!begun_ && !foreign_) remove_at_signal(path_);
}

Journal::~Journal() {
  if (!begun_ && !foreign_) remove();
}

void Journal::read() {
  std::string text(size_t(fd_.stat().st_size), '\0');
  fd_.read(text.data(), int64_t(text.size()), 0);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const size_t last = line.rfind(' ');
    if (last == line.npos || checksum_of(line.substr(0, last)) != line.substr(last + 1)) break;
    if (!read_line(line.substr(0, last))) break;
    end_ += int64_t(line.size()) + 1;
  }
  foreign_ = !begun_ && text.starts_with(any_mark) && text.find('\n') != text.npos;
  if (end_ < int64_t(text.size()) && !foreign_) truncate();
}

/// False where it is no line of this version.
bool Journal::read_line(const std::string& text) {
  std::istringstream words(text);
  std::string first;
  if (!begun_) {
    words >> first >> head_.options >> head_.source >> head_.run;
    return begun_ = first == mark && words;
  }
  if (text.starts_with(finished)) return bool(words >> first >> proof_.checksum >> proof_.file);
  int64_t job = -1;
  words >> job;
  std::getline(words >> std::ws, records_[job]);
  return true;
}

/// What is beyond the last whole line goes.
void Journal::truncate() {
  if (::ftruncate(fd_.get(), end_) != 0) fail_errno(path_, "cannot truncate", errno);
}

void Journal::clear() {
  begun_ = foreign_ = false;
  end_ = 0;
  truncate();
  if (!proof_.file.empty()) fd_.sync();
  records_.clear();
  proof_ = {};
}

void Journal::begin(const JournalHead& head) {
  remove_at_signal({});
  clear();
  append(fmt::format("{} {} {} {}", mark, head.options, head.source, head.run));
  head_ = head;
  begun_ = true;
}

void Journal::finish(const Proof& proof) {
  append(fmt::format("{} {} {}", finished, proof.checksum, proof.file));
  fd_.sync();
  proof_ = proof;
}

void Journal::add(int64_t job, const std::string& record) {
  const std::lock_guard guard(mutex_);
  append(fmt::format("{} {}", job, record));
  records_[job] = record;
}

void Journal::append(const std::string& text) {
  const std::string line = fmt::format("{} {}\n", text, checksum_of(text));
  fd_.write(line.data(), int64_t(line.size()), end_);
  end_ += int64_t(line.size());
}

void Journal::remove() {
  if (!fd_) return;
  remove_at_signal({});
  ::unlink(path_.c_str());  // before the lock goes with the file
  fd_ = Fd();
  begun_ = false;
}

}  // namespace mxfp4
