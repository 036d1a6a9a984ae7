#include "src/checkpoint/shard_reader.h"

#include <algorithm>

#include "src/checkpoint/remote_source.h"
#include "src/remote/remote_reader.h"

namespace mxfp4 {

namespace {

constexpr int64_t most_held = 128 << 20;  // of bytes that wait for others: part of the memory of RemoteReader

}  // namespace

ShardReader::ShardReader(const Checkpoint& checkpoint, CacheRoom room)
    : checkpoint_(checkpoint),
      room_(room),
      files_(checkpoint.shards.size(), [this](size_t shard) { return open_to_read(shard); }) {
  int64_t bytes = 0;
  for (const Shard& s : checkpoint.shards) bytes += s.state.bytes;
  room_.expect(bytes);
  if (checkpoint.remote)
    remote_ = checkpoint.remote->reader(checkpoint.shards);
  else
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

std::vector<int64_t> ShardReader::expect(const std::vector<std::vector<TensorRange>>& jobs,
                                         const PublishedList& published) const {
  if (!remote_) return {};
  std::vector<std::vector<RemoteRange>> ranges;
  for (const auto& job : jobs) {
    auto& list = ranges.emplace_back();
    for (const TensorRange& r : job) list.push_back({size_t(r.tensor->file), r.in_file(), r.bytes});
  }
  FetchOrder order = fetch_order(ranges, checkpoint_.shards.size(), most_held);
  for (size_t i = 0; i < checkpoint_.shards.size(); ++i) {
    const Shard& shard = checkpoint_.shards[i];
    const PublishedFile* file = find(published, shard.name);
    const int64_t begin = 8 + shard.header.bytes;
    if (!file || !is_whole(order, i, begin, shard.state.bytes)) continue;
    Digest digest = digest_like(*file, shard.state.bytes);
    const std::string header = read_text(open_read(shard.path, shard.name));
    digest.take(header.data(), begin);
    remote_->hash(i, std::move(digest), begin, file->hash);
  }
  remote_->expect(order.ranges);
  return order.jobs;
}

bool ShardReader::any_wrong() const { return remote_ && remote_->any_wrong(); }

std::map<std::string, std::string> ShardReader::arrived() const {
  std::map<std::string, std::string> hashes;
  if (remote_)
    for (const auto& [file, hash] : remote_->hashes()) hashes.emplace(checkpoint_.shards[file].name, hash);
  return hashes;
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

bool ShardReader::is_cached(const TensorRange& r) const {
  return remote_ || files_.get(size_t(r.tensor->file))->is_cached(r.bytes, r.in_file());
}

void ShardReader::check_unchanged() const {
  if (remote_) return checkpoint_.remote->check_unchanged();
  for (const auto* files : {&checkpoint_.shards, &checkpoint_.texts})
    for (const Shard& file : *files) open_again(file);
}

}  // namespace mxfp4
