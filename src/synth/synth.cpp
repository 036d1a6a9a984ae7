#include "src/synth/synth.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>

#include "src/base/threads.h"
#include "src/checkpoint/checkpoint.h"
#include "src/io/output.h"
#include "src/io/sequential_file.h"
#include "src/packed/manifest.h"
#include "src/synth/fill.h"

namespace mxfp4 {

namespace {

std::string index_text(const SynthCheckpoint& checkpoint) {
  std::vector<const SynthTensor*> by_name;
  for (const SynthTensor& t : checkpoint.tensors) by_name.push_back(&t);
  std::sort(by_name.begin(), by_name.end(), [](auto* a, auto* b) { return a->name < b->name; });
  std::string text =
      fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", checkpoint.bytes);
  const char* separator = "\n";
  for (const SynthTensor* t : by_name) {
    text += fmt::format("{}    \"{}\": \"{}\"", separator, t->name, checkpoint.shards[size_t(t->file)]);
    separator = ",\n";
  }
  return text + "\n  }\n}\n";
}

std::string config_text(const SynthCheckpoint& checkpoint) { return checkpoint.config.dump(2) + "\n"; }

/// The tensors [begin, end), which are in one shard.
struct ShardRange {
  int64_t begin = 0, end = 0, bytes = 0;
};

/// The shards, the largest first, so that all threads end at about the same time.
std::vector<ShardRange> shards_by_size(const std::vector<SynthTensor>& tensors) {
  std::vector<ShardRange> ranges;
  for (int64_t i = 0; i < int64_t(tensors.size()); ++i) {
    const SynthTensor& t = tensors[size_t(i)];
    if (i == 0 || t.file != tensors[size_t(i) - 1].file) ranges.push_back({i, i, 0});
    ranges.back().end = i + 1;
    ranges.back().bytes += t.bytes;
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return ranges;
}

static_assert(fill_block <= SequentialFile::room);

/// Calls `wrote` with the bytes of each block.
template <class Wrote>
void write_shard(const SynthCheckpoint& checkpoint, const ShardRange& range, uint64_t seed, const OutputDir& dir,
                 Wrote wrote) {
  const std::vector<SynthTensor>& tensors = checkpoint.tensors;
  const std::vector<Tensor> headed(tensors.begin() + range.begin, tensors.begin() + range.end);
  const std::string header = write_header(headed, {{"format", "pt"}}, 8);
  const std::string& name = checkpoint.shards[size_t(headed[0].file)];
  SequentialFile file(dir.create(name, int64_t(header.size()) + range.bytes));
  for (size_t at = 0; at < header.size(); at += SequentialFile::room) {
    const size_t bytes = std::min(header.size() - at, size_t(SequentialFile::room));
    std::memcpy(file.next(), header.data() + at, bytes);
    file.append(int64_t(bytes));
  }
  for (int64_t t = range.begin; t < range.end; ++t)
    for (int64_t block = 0; block * fill_block < tensors[size_t(t)].bytes; ++block) {
      const int64_t bytes = std::min(fill_block, tensors[size_t(t)].bytes - block * fill_block);
      fill(checkpoint, t, seed, block, file.next(), bytes);
      file.append(bytes);
      wrote(bytes);
    }
  file.finish();
}

/// Each thread writes one shard after the other.
void write_shards(const SynthCheckpoint& checkpoint, const SynthOptions& options, const OutputDir& dir) {
  const std::vector<ShardRange> ranges = shards_by_size(checkpoint.tensors);
  std::mutex mutex;          // guards `error`
  std::exception_ptr error;  // the first, which ends all
  int64_t done = 0;
  const auto wrote = [&](int64_t bytes) {
    const std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(error);
    done += bytes;
    if (options.progress) options.progress(done, checkpoint.bytes);
  };
  run_jobs(int64_t(ranges.size()), options.threads, [&](int64_t i) {
    try {
      write_shard(checkpoint, ranges[size_t(i)], options.seed, dir, wrote);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      throw;
    }
  });
}

}  // namespace

void synth(const SynthOptions& options) {
  const SynthCheckpoint checkpoint = describe_checkpoint(options.model, options.sizes);
  const std::string config = config_text(checkpoint), index = index_text(checkpoint);
  std::vector<std::string> made = checkpoint.shards;
  made.insert(made.end(), {config_name, index_name});
  Place place = place_of(options.dest);
  check_not_in_output(options.dest, place.above);
  OutputDir dir(std::move(place), options.dest);
  dir.open({.made = made, .bytes = checkpoint.bytes});
  write_shards(checkpoint, options, dir);
  dir.write_text(config_name, config);
  dir.write_text(index_name, index);
  dir.commit(config_name);
}

}  // namespace mxfp4
