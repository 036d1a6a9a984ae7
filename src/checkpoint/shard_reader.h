// A checkpoint's tensors, read from its shards.
#pragma once

#include <memory>
#include <span>

#include "src/checkpoint/checkpoint.h"
#include "src/device/page_cache_map.h"
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
  /// Begins to fetch these ranges from a server, in this order. Each of their bytes is to be read once. Does nothing if
  /// the shards are local.
  void expect(std::span<const TensorRange> ranges) const;
  /// Like DirectFile::read.
  void read(const TensorRange& range, void* to, const DirectFile::BlockSink& sink = {}) const;
  /// Reads ranges in order. Adjacent ranges of a shard are read in one call.
  void read(std::span<const TensorRange> ranges, uint8_t* to, const DirectFile::BlockSink& sink = {}) const;
  /// Maps one range of the page cache that contains all ranges. Null if it would contain much other data, or if the
  /// ranges are in several shards. A byte's position in the mapping is its offset in the shard.
  std::unique_ptr<PageCacheMap> map(Device& device, std::span<const TensorRange> ranges) const;
  /// See DirectFile::is_cached. True for a shard on a server, so that jobs keep their order.
  bool is_cached(const TensorRange& range) const;
  /// DirectFile::reads_past_cache() of the tensor's shard.
  bool reads_past_cache(const Tensor& t) const { return !remote_ && files_.get(size_t(t.file))->reads_past_cache(); }
  /// Throws Error{input} if a shard was replaced, or if its size or mtime has changed. Throws Error{io} if a shard is
  /// missing. A read from a server has thrown already if the shard had changed.
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
