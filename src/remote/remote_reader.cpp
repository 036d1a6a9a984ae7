#include "src/remote/remote_reader.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

#include "src/base/error.h"
#include "src/base/signals.h"
#include "src/base/slots.h"
#include "src/base/threads.h"
#include "src/remote/client.h"

namespace mxfp4 {

namespace {

constexpr int64_t block_bytes = 4 << 20;   // long enough that a round trip of 100 ms costs little
constexpr int64_t most_bytes = 224 << 20;  // of blocks that nobody waits for
constexpr int64_t ahead_bytes = 32 << 20;  // of one read
constexpr int64_t sink_bytes = 256 << 10;  // fits into a core's cache between copy and hash

}  // namespace

struct RemoteReader::Block {
  RemoteRange range;
  enum class State { waits, is_fetched, is_here, failed } state = State::waits;
  bool is_urgent = false, is_needed = false;  // is_needed: a thread waits for it
  int64_t left = 0;                           // bytes that were not used
  std::unique_ptr<uint8_t[]> data = {};
  std::exception_ptr error = {};
};

RemoteReader::RemoteReader(Client& client, std::vector<RemoteFile*> files)
    : client_(client), files_(std::move(files)) {}

RemoteReader::~RemoteReader() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    const bool is_busy = std::any_of(blocks_.begin(), blocks_.end(),
                                     [](const auto& b) { return b.second->state == Block::State::is_fetched; });
    if (is_busy) client_.close();
  }
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RemoteReader::start_threads() {
  if (!threads_.empty()) return;
  sigset_t all, before;  // only the program's own threads handle signals
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool can_start = true;
  for (int i = 0; i < most_requests() && can_start; ++i)
    can_start = try_to_start([&] { threads_.emplace_back([this] { fetch_blocks(); }); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (threads_.empty()) fail(ErrorKind::io, "cannot start a thread that reads");
}

std::shared_ptr<RemoteReader::Block> RemoteReader::add(const RemoteRange& range) {
  auto block = std::make_shared<Block>(Block{.range = range, .left = range.bytes});
  return blocks_.emplace(Place(range.file, range.offset), block).second ? block : nullptr;
}

void RemoteReader::expect(const std::vector<RemoteRange>& ranges) {
  const std::lock_guard lock(mutex_);
  for (const RemoteRange& r : ranges)
    for (int64_t at = 0; at < r.bytes; at += block_bytes)
      if (auto block = add({r.file, r.offset + at, std::min(block_bytes, r.bytes - at)}))
        planned_.push_back(std::move(block));
  start_threads();
  more_.notify_all();
}

std::shared_ptr<RemoteReader::Block> RemoteReader::begin(std::shared_ptr<Block> block) {
  held_ += block->range.bytes;
  block->state = Block::State::is_fetched;
  return block;
}

/// The next block to fetch, with its memory counted; null if there is none, or no memory for it. Needs the lock.
std::shared_ptr<RemoteReader::Block> RemoteReader::next() {
  const auto waits = [](const auto& block) { return block->state == Block::State::waits; };
  for (auto* list : {&urgent_, &planned_})
    while (!list->empty() && !waits(list->front())) list->pop_front();
  for (const auto& block : urgent_)
    if (block->is_needed && waits(block)) return begin(block);
  const auto& list = urgent_.empty() ? planned_ : urgent_;
  if (list.empty() || held_ + list.front()->range.bytes > most_bytes) return nullptr;
  return begin(list.front());
}

void RemoteReader::fetch_blocks() {
  std::unique_lock lock(mutex_);
  while (!is_closed_) {
    const std::shared_ptr<Block> block = next();
    if (!block) {
      more_.wait(lock);
      continue;
    }
    lock.unlock();
    try {
      const RemoteRange& r = block->range;
      block->data = std::make_unique_for_overwrite<uint8_t[]>(size_t(r.bytes));
      if (client_.read(*files_[r.file], r.offset, r.bytes, block->data.get()) != r.bytes)
        fail(ErrorKind::input, "{}: {}: ends at byte {}, {} more expected", client_.shown(), files_[r.file]->name,
             files_[r.file]->bytes, r.offset + r.bytes - files_[r.file]->bytes);
    } catch (...) {
      block->error = std::current_exception();
    }
    lock.lock();
    block->state = block->error ? Block::State::failed : Block::State::is_here;
    fetched_.notify_all();
  }
}

/// The block that has a byte. If no block has it, a new one up to the next block or `end`.
std::shared_ptr<RemoteReader::Block> RemoteReader::block_at(size_t file, int64_t offset, int64_t end) {
  const auto after = blocks_.upper_bound({file, offset});
  if (after != blocks_.begin()) {
    const auto& [place, block] = *std::prev(after);
    if (place.first == file && offset < place.second + block->range.bytes) return block;
  }
  if (after != blocks_.end() && after->first.first == file) end = std::min(end, after->first.second);
  return add({file, offset, std::min(block_bytes, end - offset)});
}

/// The block that has a byte. Begins to fetch it and what follows, if nobody has. Needs the lock.
std::shared_ptr<RemoteReader::Block> RemoteReader::ask_for(size_t file, int64_t offset, int64_t end) {
  start_threads();
  std::shared_ptr<Block> first;
  for (int64_t at = offset; at < std::min(end, offset + ahead_bytes);) {
    const auto block = block_at(file, at, end);
    if (!first) first = block;
    if (block->state == Block::State::waits && !block->is_urgent) {
      block->is_urgent = true;
      urgent_.push_back(block);
    }
    at = block->range.offset + block->range.bytes;
  }
  first->is_needed = true;
  more_.notify_all();
  return first;
}

/// The block that has a byte, once it is here.
std::shared_ptr<RemoteReader::Block> RemoteReader::wait_for(size_t file, int64_t offset, int64_t end) {
  std::unique_lock lock(mutex_);
  const auto block = ask_for(file, offset, end);
  const auto has_ended = [&] { return block->state == Block::State::is_here || block->state == Block::State::failed; };
  if (!has_ended()) {
    lock.unlock();
    const Slots::Left slot;  // is taken again without the lock, which the slot's holder may need
    lock.lock();
    while (!has_ended()) {
      fetched_.wait_for(lock, std::chrono::milliseconds(200));
      throw_if_interrupted();
    }
    lock.unlock();
  }
  if (block->error) std::rethrow_exception(block->error);
  return block;
}

void RemoteReader::used(const std::shared_ptr<Block>& block, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  block->left -= bytes;
  if (block->left > 0) return;
  const auto at = blocks_.find({block->range.file, block->range.offset});
  if (at == blocks_.end() || at->second != block) return;  // another thread has used the same bytes
  blocks_.erase(at);
  held_ -= block->range.bytes;
  more_.notify_all();
}

void RemoteReader::read(const RemoteRange& r, uint8_t* to, const Sink& sink) {
  const int64_t end = r.offset + r.bytes;
  for (int64_t at = r.offset; at < end;) {
    const std::shared_ptr<Block> block = wait_for(r.file, at, end);
    const int64_t first = at - block->range.offset, bytes = std::min(end - at, block->range.bytes - first);
    for (int64_t done = 0, step; done < bytes; done += step) {
      step = std::min(sink_bytes, bytes - done);
      const uint8_t* from = block->data.get() + first + done;
      if (to) std::memcpy(to + (at - r.offset) + done, from, size_t(step));
      if (sink) sink(to ? to + (at - r.offset) + done : from, step);
    }
    used(block, bytes);
    at += bytes;
  }
}

}  // namespace mxfp4
