// A checkpoint's tensors, read from its shards.
#pragma once

#include <memory>
#include <span>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/published_list.h"
#include "src/io/open_files.h"
#include "src/io/page_cache.h"

namespace mxfp4 {

class RemoteReader;

/// The shards' data. Local shards are opened if needed, and can be read from any thread.
class ShardReader {
 public:
  /// room: decides which of the shards' pages stay in the page cache.
  explicit ShardReader(const Checkpoint& checkpoint, CacheRoom room = {});
  ~ShardReader();
  /// Begins to fetch the ranges that jobs read from a server. Each of their bytes is to be read once. Returns the order
  /// in which the jobs are to be taken; nothing if the shards are local. Bytes of shards in `published` are hashed as
  /// they arrive, if all of a shard's bytes are in the ranges, and can arrive in order.
  std::vector<int64_t> expect(const std::vector<std::vector<TensorRange>>& jobs, const PublishedList& published) const;
  /// Whether a shard does not have its published hash.
  bool any_wrong() const;
  /// The hashes of the shards that were hashed as they arrived: all of them, unless any is wrong. To be called when all
  /// jobs have read.
  std::map<std::string, std::string> arrived() const;
  /// Like DirectFile::read.
  void read(const TensorRange& range, void* to, const DirectFile::BlockSink& sink = {}) const;
  /// Reads ranges in order. Adjacent ranges of a shard are read in one call.
  void read(std::span<const TensorRange> ranges, uint8_t* to, const DirectFile::BlockSink& sink = {}) const;
  /// See DirectFile::is_cached. True for a shard on a server.
  bool is_cached(const TensorRange& range) const;
  /// Throws Error{input} if a shard was replaced, or if its size or mtime has changed. Throws Error{io} if a shard is
  /// missing. Of a server's files it asks for the small ones only: a read has thrown already if its shard had changed.
  void check_unchanged() const;

 private:
  DirectFile open_to_read(size_t shard);
  void read(size_t shard, int64_t offset, int64_t bytes, void* to, const DirectFile::BlockSink& sink) const;

  const Checkpoint& checkpoint_;
  CacheRoom room_;
  mutable OpenFiles files_;
  std::unique_ptr<RemoteReader> remote_;  // null: the shards are local
};

}  // namespace mxfp4
