#include "src/checkpoint/shard_reader.h"

#include <algorithm>

#include "src/checkpoint/remote_source.h"
#include "src/remote/remote_reader.h"

namespace mxfp4 {

ShardReader::ShardReader(const Checkpoint& checkpoint, CacheRoom room)
    : checkpoint_(checkpoint),
      room_(room),
      files_(checkpoint.shards.size(), [this](size_t shard) { return open_to_read(shard); }) {
  int64_t bytes = 0;
  for (const Shard& s : checkpoint.shards) bytes += s.state.bytes;
  room_.expect(bytes);
  if (checkpoint.remote) remote_ = checkpoint.remote->reader(checkpoint.shards);
  check_unchanged();
}

ShardReader::~ShardReader() = default;

DirectFile ShardReader::open_to_read(size_t shard) {
  DirectFile file(open_again(checkpoint_.shards[shard]));
  file.keep_reads(room_.stays(checkpoint_.shards[shard].state.bytes));
  return file;
}

void ShardReader::read(size_t shard, int64_t offset, int64_t bytes, void* to, const DirectFile::BlockSink& sink) const {
  if (remote_)
    remote_->read({shard, offset, bytes}, static_cast<uint8_t*>(to), sink);
  else
    files_.get(shard)->read(to, bytes, offset, sink);
}

void ShardReader::read(const TensorRange& r, void* to, const DirectFile::BlockSink& sink) const {
  read(size_t(r.tensor->file), r.in_file(), r.bytes, to, sink);
}

void ShardReader::expect(std::span<const TensorRange> ranges) const {
  if (!remote_) return;
  std::vector<RemoteRange> list;
  for (const TensorRange& r : ranges) {
    const auto file = size_t(r.tensor->file);
    if (!list.empty() && list.back().file == file && list.back().offset + list.back().bytes == r.in_file())
      list.back().bytes += r.bytes;
    else
      list.push_back({file, r.in_file(), r.bytes});
  }
  remote_->expect(list);
}

void ShardReader::read(std::span<const TensorRange> ranges, uint8_t* to, const DirectFile::BlockSink& sink) const {
  for (size_t i = 0; i < ranges.size();) {
    const int file = ranges[i].tensor->file;
    const int64_t begin = ranges[i].in_file();
    int64_t end = begin;
    for (; i < ranges.size() && ranges[i].tensor->file == file && ranges[i].in_file() == end; ++i)
      end += ranges[i].bytes;
    read(size_t(file), begin, end - begin, to, sink);
    to += end - begin;
  }
}

std::unique_ptr<PageCacheMap> ShardReader::map(Device& device, std::span<const TensorRange> ranges) const {
  if (remote_) return nullptr;
  int64_t begin = INT64_MAX, end = 0, bytes = 0;
  for (const TensorRange& r : ranges) {
    if (r.tensor->file != ranges[0].tensor->file) return nullptr;
    begin = std::min(begin, r.in_file());
    end = std::max(end, r.in_file() + r.bytes);
    bytes += r.bytes;
  }
  if (end - begin > 2 * bytes) return nullptr;
  return map_to_read(device, *files_.get(size_t(ranges[0].tensor->file)), end - begin, begin);
}

bool ShardReader::is_cached(const TensorRange& r) const {
  return remote_ || files_.get(size_t(r.tensor->file))->is_cached(r.bytes, r.in_file());
}

void ShardReader::check_unchanged() const {
  if (remote_) return;
  for (const Shard& shard : checkpoint_.shards) open_again(shard);
}

}  // namespace mxfp4
