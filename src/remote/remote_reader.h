// Reads a source's files from a server, ahead of the threads that use the bytes.
//
//     planned ranges   |=====|=====|=====|·····|·····|·····
//                       used  here  on the way               threads with a connection each fetch blocks in this order
//
// All blocks together stay within a budget of memory. A thread that waits for a block gets it even beyond that.
#pragma once

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

namespace mxfp4 {

class Client;
struct RemoteFile;

/// A range of the file with this number.
struct RemoteRange {
  size_t file = 0;
  int64_t offset = 0, bytes = 0;
};

class RemoteReader {
 public:
  /// The members of all files must be known. Both must outlive this object.
  RemoteReader(Client& client, std::vector<RemoteFile*> files);
  ~RemoteReader();
  RemoteReader(const RemoteReader&) = delete;

  /// Called with the bytes of a read, in order.
  using Sink = std::function<void(const uint8_t* block, int64_t bytes)>;

  /// Begins to fetch ranges, in this order. Each byte is fetched once if it is in one range and read once.
  void expect(const std::vector<RemoteRange>& ranges);
  /// Reads any range, from any thread. `to` null: the bytes are only handed to `sink`.
  void read(const RemoteRange& range, uint8_t* to, const Sink& sink);

 private:
  struct Block;
  using Place = std::pair<size_t, int64_t>;  // file, offset
  void start_threads();
  void fetch_blocks();
  std::shared_ptr<Block> begin(std::shared_ptr<Block> block);
  std::shared_ptr<Block> next();
  std::shared_ptr<Block> block_at(size_t file, int64_t offset, int64_t end);
  std::shared_ptr<Block> ask_for(size_t file, int64_t offset, int64_t end);
  std::shared_ptr<Block> wait_for(size_t file, int64_t offset, int64_t end);
  void used(const std::shared_ptr<Block>& block, int64_t bytes);
  std::shared_ptr<Block> add(const RemoteRange& range);

  Client& client_;
  const std::vector<RemoteFile*> files_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;  // guards the following members
  std::condition_variable more_, fetched_;
  std::map<Place, std::shared_ptr<Block>> blocks_;
  std::deque<std::shared_ptr<Block>> planned_, urgent_;  // not fetched; an urgent block may be in both
  int64_t held_ = 0;                                     // bytes of memory in blocks
  bool is_closed_ = false;
};

}  // namespace mxfp4
