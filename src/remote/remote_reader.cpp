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
  bool in_order = false;                      // comes with the file's other bytes, for a hash
  bool is_unhashed = false;                   // the hash still needs it
  bool is_urgent = false, is_needed = false;  // is_needed: a thread waits for it
  int64_t left = 0;                           // bytes that were not used
  std::unique_ptr<uint8_t[]> data = {};
  std::exception_ptr error = {};
  int64_t end() const { return range.offset + range.bytes; }
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

void RemoteReader::hash(size_t file, Digest digest, int64_t offset, const std::string& expected) {
  Lock lock(mutex_);
  hashing_.emplace(file, Hashing{std::move(digest), offset, expected});
  hash_on(file, lock);  // there may be no bytes
}

void RemoteReader::expect(const std::vector<RemoteRange>& ranges) {
  const Lock lock(mutex_);
  for (const RemoteRange& r : ranges)
    for (int64_t at = 0; at < r.bytes; at += block_bytes)
      if (auto block = add({r.file, r.offset + at, std::min(block_bytes, r.bytes - at)})) {
        block->in_order = block->is_unhashed = hashing_.contains(r.file);
        planned_.push_back(std::move(block));
      }
  start_threads();
  more_.notify_all();
}

/// The first blocks of a list that one request can fetch, with their memory counted; none if there is no memory for
/// them. may_exceed: the first gets memory anyway. Needs the lock.
RemoteReader::Run RemoteReader::begin(std::deque<std::shared_ptr<Block>>& list, bool may_exceed) {
  Run run;
  int64_t bytes = 0;
  for (; !list.empty(); list.pop_front()) {
    const std::shared_ptr<Block>& block = list.front();
    if (block->state != Block::State::waits) continue;
    const RemoteRange& r = block->range;
    bytes += r.bytes;
    const bool follows = !run.empty() && run.back()->range.file == r.file && run.back()->end() == r.offset;
    if (!run.empty() && (!follows || bytes > block_bytes)) break;
    if (held_ + r.bytes > most_bytes && !(may_exceed && run.empty())) break;
    held_ += r.bytes;
    block->state = Block::State::is_fetched;
    if (block->in_order && block->is_needed) --needed_;
    run.push_back(block);
  }
  return run;
}

/// The next blocks to fetch; none if there are none, or no memory for them. Needs the lock.
RemoteReader::Run RemoteReader::next() {
  const auto waits = [](const auto& block) { return block->state == Block::State::waits; };
  const auto needed =
      std::find_if(urgent_.begin(), urgent_.end(), [&](const auto& b) { return b->is_needed && waits(b); });
  if (needed != urgent_.end()) {
    std::deque<std::shared_ptr<Block>> one = {*needed};
    return begin(one, true);
  }
  if (std::any_of(urgent_.begin(), urgent_.end(), waits)) return begin(urgent_, false);
  // If a hash needs blocks that are here, it waits for bytes that are on the way, and then frees memory.
  return begin(planned_, needed_ > 0 && unhashed_ == 0);
}

void RemoteReader::fetch(const Run& run) try {
  const RemoteRange& first = run.front()->range;
  const int64_t end = run.back()->end();
  for (const auto& b : run) b->data = std::make_unique_for_overwrite<uint8_t[]>(size_t(b->range.bytes));
  size_t at = 0;  // of the block that gets the next byte
  const auto put = [&](int64_t offset, std::string_view part) {
    while (!part.empty()) {
      while (offset >= run[at]->end()) ++at;
      const auto bytes = size_t(std::min(run[at]->end() - offset, int64_t(part.size())));
      std::memcpy(run[at]->data.get() + (offset - run[at]->range.offset), part.data(), bytes);
      part.remove_prefix(bytes);
      offset += int64_t(bytes);
    }
  };
  RemoteFile& file = *files_[first.file];
  if (client_.read(file, first.offset, end - first.offset, put) != end - first.offset)
    fail(ErrorKind::input, "{}: {}: ends at byte {}, {} more expected", client_.shown(), file.name, file.bytes,
         end - file.bytes);
} catch (...) {
  for (const auto& b : run) b->error = std::current_exception();
}

void RemoteReader::fetch_blocks() {
  Lock lock(mutex_);
  while (!is_closed_) {
    const Run run = next();
    if (run.empty()) {
      more_.wait(lock);
      continue;
    }
    lock.unlock();
    fetch(run);
    lock.lock();
    for (const auto& b : run) b->state = b->error ? Block::State::failed : Block::State::is_here;
    fetched_.notify_all();
    const size_t file = run.front()->range.file;
    run.front()->error ? stop_hashing(file) : hash_on(file, lock);
  }
}

/// Hashes the bytes that come next in a file and are here, unless another thread does. Needs the lock, and leaves it
/// meanwhile.
void RemoteReader::hash_on(size_t file, Lock& lock) {
  const auto found = hashing_.find(file);
  if (found == hashing_.end() || found->second.is_busy) return;
  Hashing& h = found->second;
  h.is_busy = true;
  while (!h.is_stopped && !is_closed_) {
    const auto at = blocks_.find({file, h.at});
    if (at == blocks_.end() || at->second->state != Block::State::is_here || !at->second->is_unhashed) break;
    const std::shared_ptr<Block> block = at->second;
    lock.unlock();
    h.digest.take(block->data.get(), block->range.bytes);
    lock.lock();
    h.at += block->range.bytes;
    hashed(*block);
  }
  h.is_busy = false;
  if (h.is_stopped || h.at < files_[file]->bytes || !h.is.empty()) return;
  h.is = h.digest.hex();
  any_wrong_ = any_wrong_ || h.is != h.expected;
  fetched_.notify_all();
}

void RemoteReader::hashed(Block& block) {
  if (!block.is_unhashed) return;
  block.is_unhashed = false;
  if (block.left > 0) return;
  unhashed_ -= block.range.bytes;
  let_go(block);
}

/// So that no block waits for one that cannot be fetched.
void RemoteReader::stop_hashing(size_t file) {
  const auto found = hashing_.find(file);
  if (found == hashing_.end()) return;
  found->second.is_stopped = true;
  for (auto at = blocks_.lower_bound({file, 0}); at != blocks_.end() && at->first.first == file;) {
    const std::shared_ptr<Block> block = (at++)->second;
    hashed(*block);
  }
}

std::map<size_t, std::string> RemoteReader::hashes() {
  Lock lock(mutex_);
  const auto is_complete = [](const auto& h) { return h.second.is_stopped || !h.second.is.empty(); };
  while (!any_wrong_ && !std::all_of(hashing_.begin(), hashing_.end(), is_complete)) {
    fetched_.wait_for(lock, std::chrono::milliseconds(200));
    throw_if_interrupted();
  }
  std::map<size_t, std::string> out;
  for (const auto& [file, h] : hashing_)
    if (!h.is.empty()) out.emplace(file, h.is);
  return out;
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
    if (block->state == Block::State::waits && !block->is_urgent && !block->in_order) {
      block->is_urgent = true;
      urgent_.push_back(block);
    }
    at = block->range.offset + block->range.bytes;
  }
  if (first->in_order && !first->is_needed && first->state == Block::State::waits) ++needed_;
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
  const Lock lock(mutex_);
  const bool was_used = block->left <= 0;  // another thread has read the same bytes
  block->left -= bytes;
  if (was_used || block->left > 0) return;
  if (block->is_unhashed)
    unhashed_ += block->range.bytes;
  else
    let_go(*block);
}

void RemoteReader::let_go(const Block& block) {
  held_ -= block.range.bytes;
  blocks_.erase({block.range.file, block.range.offset});
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
