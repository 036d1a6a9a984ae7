#include "src/io/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/signals.h"

namespace mxfp4 {

namespace {

constexpr const char* any_mark = "mxfp4-pack-journal-";
constexpr const char* mark = "mxfp4-pack-journal-3";
constexpr const char* finished = "finished";
constexpr int64_t piece = 32 << 20;  // longer than any line

/// As take_lock(), for a tenth of a second: clean holds the lock while it looks at a journal or removes it.
Lock lock_soon(const Fd& fd) {
  Lock lock = take_lock(fd);
  for (int tries = 0; lock == Lock::held && tries < 10; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    lock = take_lock(fd);
  }
  return lock;
}

Fd open_journal(const Folder& folder, const std::string& name) {
  Fd file = folder.open(name, O_RDWR | O_CREAT | O_NONBLOCK, 0600);
  if (!file && errno == ELOOP) fail(ErrorKind::usage, "{}: is a link; remove it", folder.path(name));
  if (!file) fail_errno(folder.path(name), "cannot create", errno);
  const struct stat s = file.stat();
  if (!S_ISREG(s.st_mode) || s.st_nlink > 1 || s.st_uid != ::geteuid() || (s.st_mode & 022))
    fail(ErrorKind::usage, "{}: not a file of mxfp4-pack's own; move it away", file.name());
  if (s.st_size > 0) ::fsync(file.get());  // NFS reports here, once, failed writes of a former run
  return file;
}

bool is_file_at(const Fd& fd, const Folder& folder, const std::string& name) {
  const auto there = folder.look(name);
  return there && identity_of(fd.stat()) == identity_of(*there);
}

/// False if this version does not write such a line.
bool read_line(const std::string& line, JournalText& journal) {
  std::istringstream words(line);
  std::string first;
  if (!journal.begun) {
    std::string run;
    words >> first >> journal.head.options >> journal.head.source >> std::ws;
    std::getline(words, journal.head.inputs, '\t');
    std::getline(words, run);
    read_run_line(run, journal.head);
    return journal.begun = first == mark && words;
  }
  if (line.starts_with(finished)) {
    words >> first >> journal.list;
    return journal.finished = true;
  }
  int64_t job = -1;
  words >> job;
  std::getline(words >> std::ws, journal.records[job]);
  return true;
}

/// Whether no version writes text that begins like this. A power loss can leave a partial mark, or a sector of zeros.
bool is_strange(std::string_view text) {
  constexpr size_t sector = 512;
  const bool is_lost = text.substr(0, sector).find_first_not_of('\0') == text.npos;
  return !is_lost && !text.starts_with(any_mark) && !std::string_view(any_mark).starts_with(text);
}

/// Whether the text has another version's mark. An incomplete first line is this version's, after a power loss.
bool is_of_another_version(std::string_view text) {
  return text.starts_with(any_mark) && !text.starts_with(fmt::format("{} ", mark)) && text.find('\n') != text.npos;
}

/// Reads complete lines up to the first wrong line. Returns the number of bytes that it read.
int64_t read_lines(const std::string& text, JournalText& journal) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const size_t last = line.rfind(' ');
    if (last == line.npos || checksum_of(line.substr(0, last)) != line.substr(last + 1)) break;
    if (!read_line(line.substr(0, last), journal)) break;
  }
  journal.end += int64_t(begin);
  return int64_t(begin);
}

}  // namespace

std::string line_of(const JournalHead& head) {
  return fmt::format("{}{}{}", head.run, head.made.empty() ? "" : "\t", fmt::join(head.made, "\t"));
}

void read_run_line(const std::string& line, JournalHead& head) {
  std::istringstream parts(line);
  std::getline(parts, head.run, '\t');
  head.made.clear();
  for (std::string name; std::getline(parts, name, '\t');) head.made.push_back(name);
}

Lock take_lock(const Fd& fd, bool shared) {
  int result;
  do result = ::flock(fd.get(), (shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result == 0) return Lock::taken;
  if (errno == EWOULDBLOCK) return Lock::held;
  if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) fail_errno(fd.name(), "cannot lock", errno);
  return Lock::none;
}

JournalText read_journal(const Fd& fd) {
  const int64_t bytes = fd.stat().st_size;
  JournalText journal;
  std::string text;
  for (int64_t at = 0; at < bytes; at += piece) {  // any other file is given up at its first line
    const int64_t part = std::min(piece, bytes - at), kept = int64_t(text.size());
    text.resize(size_t(kept + part));
    fd.read(text.data() + kept, part, at);
    if (at == 0) {
      journal.foreign = is_of_another_version(text);
      journal.strange = is_strange(text);
    }
    const int64_t used = read_lines(text, journal);
    text.erase(0, size_t(used));
    journal.damaged = text.find('\n') != text.npos;
    if (used == 0 || journal.damaged) break;  // an incomplete or wrong line
  }
  journal.foreign &= !journal.begun;
  return journal;
}

Journal::Journal(const Folder& folder, std::string name, const std::string& out)
    : folder_(folder), name_(std::move(name)) {
  do {  // again if another run has just ended and removed the file
    fd_ = open_journal(folder_, name_);
    lock_ = lock_soon(fd_);
    if (lock_ == Lock::held) fail(ErrorKind::usage, "{}: another run of mxfp4-pack is writing it", out);
  } while (!is_file_at(fd_, folder_, name_));
  text_ = read_journal(fd_);
  if (text_.strange) fail(ErrorKind::usage, "{}: is no journal of mxfp4-pack; move it away", fd_.name());
  if (text_.end < fd_.stat().st_size && !text_.foreign) truncate();
}

Journal::~Journal() {
  if (!text_.begun && !text_.foreign) remove();
}

/// Removes everything after the last complete line.
void Journal::truncate() {
  if (::ftruncate(fd_.get(), text_.end) != 0) fail_errno(fd_.name(), "cannot truncate", errno);
}

void Journal::clear() {
  const bool was_finished = text_.finished, was_empty = text_.end == 0 && !text_.foreign;
  text_ = {};
  if (!was_empty) truncate();
  if (was_finished) fd_.sync();
}

void Journal::begin(const JournalHead& head) {
  remove_at_signal();
  clear();
  append(fmt::format("{} {} {} {}\t{}", mark, head.options, head.source, head.inputs, line_of(head)));
  text_.head = head;
  text_.begun = true;
}

bool Journal::is_in_place() const { return is_file_at(fd_, folder_, name_); }

void Journal::finish(const std::string& list) {
  append(fmt::format("{} {}", finished, list));
  fd_.sync();
  text_.finished = true;
  text_.list = list;
}

void Journal::add(int64_t job, const std::string& record) {
  const std::lock_guard guard(mutex_);
  append(fmt::format("{} {}", job, record));
  text_.records[job] = record;
}

void Journal::append(const std::string& text) {
  const std::string line = fmt::format("{} {}\n", text, checksum_of(text));
  fd_.write(line.data(), int64_t(line.size()), text_.end);
  text_.end += int64_t(line.size());
}

void Journal::remove() {
  if (!fd_) return;
  remove_at_signal();
  // Somebody may have renamed it, to put it back later: then it says nothing.
  if (::ftruncate(fd_.get(), 0) != 0) note_detail(fmt::format("{}: cannot be emptied", folder_.path(name_)));
  if (is_in_place()) folder_.unlink(name_);  // before the lock goes with the file
  fd_ = Fd();
  text_.begun = false;
}

}  // namespace mxfp4
