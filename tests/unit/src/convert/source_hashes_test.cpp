// Jobs follow the order of their files, after the hash of their bytes.
#include "src/convert/source_hashes.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "src/base/threads.h"
#include "src/checkpoint/published.h"
#include "src/io/sha256.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

namespace {

constexpr int64_t tensor_bytes_here = 1'000'003;  // not a multiple of the bytes that are hashed at once

/// Files with several tensors each, without headers, because only the bytes matter.
struct Files {
  TempDir dir;
  Checkpoint checkpoint;
  PublishedList published;

  Files(int files, int tensors) {
    for (int f = 0; f < files; ++f) {
      const std::string name = fmt::format("{}.safetensors", f), path = dir / name;
      std::string text;
      for (int t = 0; t < tensors; ++t) {
        checkpoint.tensors.push_back(
            {fmt::format("{}.{}", f, t), Dtype::U8, {tensor_bytes_here}, f, t * tensor_bytes_here, tensor_bytes_here});
        text += std::string(size_t(tensor_bytes_here), char('a' + f + t));
      }
      write_text(path, text);
      checkpoint.shards.push_back(source_shard(name, path, open_read(path)));
      published.push_back({.name = name, .bytes = int64_t(text.size()), .hash = sha256_of(text), .by = "test"});
    }
  }

  /// One job for each tensor, in reverse order.
  std::vector<TensorRange> jobs() const {
    std::vector<TensorRange> ends;
    for (const Tensor& t : checkpoint.tensors) ends.insert(ends.begin(), {&t, 0, t.bytes});
    return ends;
  }
};

std::vector<std::string> problems_of(const SourceHashes& hashes) {
  Problems problems;
  hashes.report(problems);
  return problems.errors();
}

}  // namespace

TEST_CASE("one thread takes the jobs of a source in the order of its files") {
  const Files files(2, 3);
  SourceHashes hashes(files.checkpoint, files.published);
  hashes.set_jobs(files.jobs());
  std::vector<int64_t> taken;
  for (int i = 0; i < 6; ++i) {
    taken.push_back(hashes.next());
    hashes.done(taken.back());
  }
  CHECK(taken == std::vector<int64_t>{5, 4, 3, 2, 1, 0});
  hashes.finish(1);
  CHECK_FALSE(hashes.any_wrong());
  CHECK(problems_of(hashes).empty());
}

TEST_CASE("two threads take jobs of different files") {
  const Files files(3, 2);
  SourceHashes hashes(files.checkpoint, files.published);
  hashes.set_jobs(files.jobs());
  CHECK(hashes.next() == 5);
  CHECK(hashes.next() == 3);
  CHECK(hashes.next() == 1);
  hashes.done(3);
  CHECK(hashes.next() == 2);
}

TEST_CASE("threads take every job once, and every shard with another byte is found") {
  Files files(5, 7);
  for (const size_t wrong : {0, 3}) {
    Shard& shard = files.checkpoint.shards[wrong];
    flip(shard.path, wrong == 0 ? 0 : shard.state.bytes - 1);
    shard = source_shard(shard.name, shard.path, open_read(shard.path));
  }
  for (const int threads : {1, 2, 8}) {
    SourceHashes hashes(files.checkpoint, files.published);
    hashes.set_jobs(files.jobs());
    std::vector<std::atomic<int>> times(35);
    run_jobs(35, threads, [&](int64_t) {
      const int64_t job = hashes.next();
      ++times[size_t(job)];
      hashes.done(job);
    });
    CHECK(std::all_of(times.begin(), times.end(), [](const auto& n) { return n == 1; }));
    hashes.finish(threads);
    CHECK(hashes.any_wrong());
    const auto problems = problems_of(hashes);
    REQUIRE(problems.size() == 2);
    CHECK(problems[0].starts_with("0.safetensors: SHA-256 is "));
    CHECK(problems[1].starts_with("3.safetensors: SHA-256 is "));
  }
}

TEST_CASE("a file from which no job reads is hashed in the end, and one without a hash never") {
  Files files(2, 2);
  flip(files.checkpoint.shards[1].path, 5);
  files.checkpoint.shards[1] =
      source_shard("1.safetensors", files.checkpoint.shards[1].path, open_read(files.checkpoint.shards[1].path));
  SourceHashes hashes(files.checkpoint, files.published);
  hashes.finish(2);
  CHECK(problems_of(hashes).size() == 1);
  const PublishedList first = {files.published[0]};
  SourceHashes of_first(files.checkpoint, first);
  of_first.set_jobs(files.jobs());
  for (int i = 0; i < 4; ++i) of_first.done(of_first.next());
  of_first.finish(2);
  CHECK(problems_of(of_first).empty());
}

TEST_CASE("a shard that is replaced before it is hashed is no longer the checkpoint's") {
  Files files(1, 2);
  const std::string path = files.checkpoint.shards[0].path;
  std::filesystem::rename(path, path + ".old");
  write_text(path, std::string(size_t(2 * tensor_bytes_here), 'x'));
  SourceHashes hashes(files.checkpoint, files.published);
  CHECK_THROWS_WITH(hashes.finish(1), "0.safetensors: changed while it was read; start again");
}
