#include "src/device/file_reader.h"

#include <csignal>
#include <utility>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/threads.h"

namespace mxfp4 {

/// The reads of one thread, and its copies to a GPU.
class FileReader::Lane {
 public:
  explicit Lane(FileReader& reader) : reader_(reader) {}

  void read(const Unit& unit) {
    try {
      if (reader_.open_ && !upload_) upload_ = reader_.open_();
      reader_.count_cached(unit);
      if (upload_) return upload(unit);
      Hasher hasher;
      unit.opened->file.read(unit.part.to, unit.part.bytes, unit.part.offset, sink(unit.part, hasher));
      put_hash(unit.part, hasher);
      reader_.done(*unit.request, nullptr);
    } catch (...) {
      const auto error = std::current_exception();
      settle_all();  // pieces of this unit may still be copied
      reader_.done(*unit.request, error);
    }
  }

  /// Waits for all copies, the oldest first: a unit is done after its last copy.
  void settle_all() {
    for (int i = 1; i <= Upload::buffers; ++i) settle((turn_ + i) % Upload::buffers);
  }

 private:
  static DirectFile::BlockSink sink(const FilePart& part, Hasher& hasher) {
    if (!part.hash) return {};
    return [&hasher](const uint8_t* block, int64_t bytes) { hasher.take(block, bytes); };
  }
  static void put_hash(const FilePart& part, const Hasher& hasher) {
    if (part.hash) XXH128_canonicalFromHash(reinterpret_cast<XXH128_canonical_t*>(part.hash), hasher.hash());
  }

  void upload(const Unit& unit) {
    const FilePart& part = unit.part;
    Hasher hasher;
    for (int64_t done = 0, bytes; done < part.bytes; done += bytes) {
      bytes = reader_.piece_bytes(part.offset + done, part.bytes - done);
      turn_ = (turn_ + 1) % Upload::buffers;
      settle(turn_);
      unit.opened->file.read(upload_->buffer(turn_), bytes, part.offset + done, sink(part, hasher));
      if (part.to) upload_->copy(turn_, part.to + done, bytes);
    }
    put_hash(part, hasher);
    copied_[turn_] = unit.request;
  }

  /// Waits until a buffer is free. If its copy was the last of a unit, the unit is done.
  void settle(int index) {
    std::exception_ptr error;
    try {
      if (upload_) upload_->wait(index);
    } catch (...) {
      error = std::current_exception();
    }
    if (Request* request = std::exchange(copied_[index], nullptr)) reader_.done(*request, error);
  }

  FileReader& reader_;
  std::unique_ptr<Upload> upload_;
  int turn_ = 0;
  Request* copied_[Upload::buffers] = {};  // request whose unit ended with the copy of this buffer
};

FileReader::FileReader(int threads, OpenUpload open, CacheRoom room)
    : open_(std::move(open)), room_(room), piece_(piece_for(threads)) {
  sigset_t all, before;  // only the program's own threads handle signals
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool can_start = true;
  for (int i = 0; i < threads && can_start; ++i)
    can_start = try_to_start([&] { threads_.emplace_back([this] { work(); }); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (threads_.empty()) fail(ErrorKind::io, "cannot start a thread that reads");
}

FileReader::~FileReader() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    units_.clear();
  }
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

const FileReader::Opened& FileReader::opened(const std::string& name) {
  const auto found = files_.find(name);
  if (found != files_.end()) return found->second;
  Opened& made = files_.emplace(name, Opened{DirectFile(open_read(name)), {}}).first->second;
  const int64_t bytes = made.file.fd().stat().st_size;
  made.file.keep_reads(room_.stays(bytes));
  const bool tells = !made.file.is_on_tmpfs() && tells_what_is_cached(made.file.fd());  // all of tmpfs is in memory
  if (tells) made.before.emplace(made.file.fd(), 0, bytes);
  return made;
}

void FileReader::count_cached(const Unit& unit) {
  const auto& before = unit.opened->before;
  const int64_t bytes = unit.part.bytes;
  const int64_t cached = unit.opened->file.is_on_tmpfs() ? bytes
                         : before                        ? before->cached_bytes(unit.part.offset, bytes)
                                                         : -1;
  const std::lock_guard lock(mutex_);
  cached_.read += bytes;
  if (cached < 0 || cached_.before < 0) {
    cached_.before = cached_.now = -1;
    return;
  }
  cached_.before += cached;
  if (cached == bytes)
    cached_.now += bytes;
  else
    missing_.push_back({unit.opened, unit.part.offset, bytes});
}

CachedBytes FileReader::counted() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

CachedBytes FileReader::cached() const {
  const std::lock_guard lock(mutex_);
  CachedBytes found = cached_;
  if (found.before < 0) return found;
  for (const Range& r : missing_) found.now += r.opened->file.cached_bytes(r.bytes, r.offset);
  return found;
}

namespace {

/// Checks that a part is inside its file before it is divided: a part may be larger than any memory.
void check_is_in(const Fd& file, const FilePart& part) {
  const int64_t size = file.stat().st_size, left = std::max<int64_t>(0, size - part.offset);
  if (part.bytes > left)
    fail(ErrorKind::io, "{}: ends at byte {}, {} more expected; did it change?", file.name(), size, part.bytes - left);
}

}  // namespace

int64_t FileReader::begin(const std::vector<FilePart>& parts) {
  std::deque<Unit> units;
  for (const FilePart& part : parts) {
    const Opened& file = opened(part.file);
    check_is_in(file.file.fd(), part);
    for (int64_t at = 0, bytes; at < part.bytes; at += bytes) {
      FilePart own = part;
      own.offset += at;
      own.bytes = bytes = part.hash ? part.bytes : piece_bytes(own.offset, part.bytes - at);
      if (own.to) own.to += at;
      units.push_back({nullptr, &file, std::move(own)});
    }
  }
  const std::lock_guard lock(mutex_);
  const int64_t number = ++requests_begun_;
  Request& request = requests_[number];
  request.left = int64_t(units.size());
  request.end = std::chrono::steady_clock::now();
  for (Unit& unit : units) {
    unit.request = &request;
    units_.push_back(std::move(unit));
  }
  more_.notify_all();
  return number;
}

std::chrono::steady_clock::time_point FileReader::finish(int64_t number) {
  std::unique_lock lock(mutex_);
  const auto found = requests_.find(number);
  if (found == requests_.end()) fail(ErrorKind::usage, "there is no request {}, or it was finished", number);
  less_.wait(lock, [&] { return found->second.left == 0; });
  const Request request = found->second;
  requests_.erase(found);
  if (request.error) std::rethrow_exception(request.error);
  return request.end;
}

void FileReader::work() {
  Lane lane(*this);
  while (true) {
    std::optional<Unit> unit = next(false);
    if (!unit) {
      lane.settle_all();
      unit = next(true);
    }
    if (!unit) return;
    lane.read(*unit);
  }
}

std::optional<FileReader::Unit> FileReader::next(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) more_.wait(lock, [&] { return closed_ || !units_.empty(); });
  if (units_.empty()) return std::nullopt;
  Unit unit = std::move(units_.front());
  units_.pop_front();
  return unit;
}

void FileReader::done(Request& request, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error && !request.error) request.error = error;
  request.end = std::chrono::steady_clock::now();
  if (--request.left == 0) less_.notify_all();
}

}  // namespace mxfp4
