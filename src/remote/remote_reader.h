// Reads a source's files from a server, ahead of the threads that use the bytes.
//
//     planned ranges   |=====|=====|=====|·····|·····|·····
//                       used  here  on the way               threads with a connection each fetch blocks in this order
//
// All blocks together stay within a budget of memory. A thread that waits for a block gets it even beyond that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/io/digest.h"
#include "src/remote/fetch_order.h"

namespace mxfp4 {

class Client;
struct RemoteFile;

class RemoteReader {
 public:
  /// The members of all files must be known. Both must outlive this object.
  RemoteReader(Client& client, std::vector<RemoteFile*> files);
  ~RemoteReader();
  RemoteReader(const RemoteReader&) = delete;

  /// Called with the bytes of a read, in order.
  using Sink = std::function<void(const uint8_t* block, int64_t bytes)>;

  /// Hashes the bytes of a file from `offset` on as they arrive. The ranges that expect() gets must be all of these
  /// bytes, in order. expected: the hexadecimal digits.
  void hash(size_t file, Digest digest, int64_t offset, const std::string& expected);
  /// Begins to fetch ranges, in this order. Each byte is fetched once if it is in one range and read once.
  void expect(const std::vector<RemoteRange>& ranges);
  /// Reads any range, from any thread. `to` null: the bytes are only handed to `sink`.
  void read(const RemoteRange& range, uint8_t* to, const Sink& sink);

  /// Whether a file does not have its expected hash.
  bool any_wrong() const { return any_wrong_; }
  /// The hashes that hash() has begun, by file. Waits for those that are not complete, unless any is wrong. All ranges
  /// must have been read.
  std::map<size_t, std::string> hashes();

 private:
  struct Block;
  struct Hashing {
    Digest digest;
    int64_t at;  // the bytes before this place are hashed
    std::string expected, is = {};
    bool is_busy = false, is_stopped = false;  // is_stopped: a block cannot be fetched
  };
  using Place = std::pair<size_t, int64_t>;  // file, offset
  using Lock = std::unique_lock<std::mutex>;
  using Run = std::vector<std::shared_ptr<Block>>;  // adjacent blocks that one request fetches
  void start_threads();
  void fetch_blocks();
  void fetch(const Run& run);
  Run next();
  Run begin(std::deque<std::shared_ptr<Block>>& list, bool may_exceed);
  void hash_on(size_t file, Lock& lock);
  void hashed(Block& block);
  void stop_hashing(size_t file);
  std::shared_ptr<Block> block_at(size_t file, int64_t offset, int64_t end);
  std::shared_ptr<Block> ask_for(size_t file, int64_t offset, int64_t end);
  std::shared_ptr<Block> wait_for(size_t file, int64_t offset, int64_t end);
  void used(const std::shared_ptr<Block>& block, int64_t bytes);
  void let_go(const Block& block);
  std::shared_ptr<Block> add(const RemoteRange& range);

  Client& client_;
  const std::vector<RemoteFile*> files_;
  std::vector<std::thread> threads_;
  std::atomic<bool> any_wrong_ = false;
  std::mutex mutex_;  // guards the following members
  std::condition_variable more_, fetched_;
  std::map<Place, std::shared_ptr<Block>> blocks_;
  std::map<size_t, Hashing> hashing_;                    // by file
  std::deque<std::shared_ptr<Block>> planned_, urgent_;  // not fetched; an urgent block may be in both
  int64_t held_ = 0;                                     // bytes of memory in blocks
  int64_t unhashed_ = 0;                                 // those of blocks that only a hash still needs
  int64_t needed_ = 0;                                   // planned blocks that threads wait for, not fetched
  bool is_closed_ = false;
};

}  // namespace mxfp4
