#include "src/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "src/error.h"
#include "src/log.h"

namespace mxfp4 {

namespace {

constexpr const char* mark = "mxfp4-pack-journal-1";

std::string checksum_of(std::string_view text) { return to_hex(hash_bytes(text.data(), int64_t(text.size()))); }

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

bool is_file_at(const Fd& fd, const std::string& path) {
  struct stat here, there = fd.stat();
  return ::stat(path.c_str(), &here) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

}  // namespace

Journal::Journal(std::string path, const std::string& out) : path_(std::move(path)) {
  do {  // again where the run that held it has ended and removed it meanwhile
    fd_ = open_update(path_);
    if (!take_lock(fd_, out)) fail(Kind::usage, "{}: another run of mxfp4-pack is writing it", out);
  } while (!is_file_at(fd_, path_));
  read();
}

Journal::~Journal() {
  if (!begun_) remove();
}

void Journal::read() {
  std::string text(size_t(fd_.stat().st_size), '\0');
  fd_.read(text.data(), int64_t(text.size()), 0);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const size_t last = line.rfind(' ');
    if (last == line.npos || checksum_of(line.substr(0, last)) != line.substr(last + 1)) break;
    std::istringstream words(line.substr(0, last));
    if (begun_) {
      int64_t job = -1;
      words >> job;
      std::getline(words >> std::ws, records_[job]);
    } else {
      std::string first;
      words >> first >> head_.options >> head_.source >> head_.directory;
      if (first != mark || !words) break;
      begun_ = true;
    }
    end_ += int64_t(line.size()) + 1;
  }
  if (end_ < int64_t(text.size())) truncate();
}

/// What is beyond the last whole line goes.
void Journal::truncate() {
  if (::ftruncate(fd_.get(), end_) != 0) fail_errno(path_, "cannot truncate", errno);
}

void Journal::clear() {
  begun_ = false, end_ = 0;
  records_.clear();
  truncate();
}

void Journal::begin(const JournalHead& head) {
  clear();
  append(fmt::format("{} {} {} {}", mark, head.options, head.source, head.directory));
  head_ = head, begun_ = true;
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
  ::unlink(path_.c_str());  // before the lock goes with the file
  fd_ = Fd();
  begun_ = false;
}

}  // namespace mxfp4
