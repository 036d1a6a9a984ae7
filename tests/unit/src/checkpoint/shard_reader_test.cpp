// Files of a checkpoint that change during a read.
#include "src/checkpoint/shard_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/support/make_checkpoint.h"

using namespace mxfp4;

namespace {

/// Waits for the next tick of the kernel's clock, which is the resolution of the ctime.
void wait_for_clock() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

/// Changes the last byte, and restores the mtime.
void change_in_place(const std::string& path) {
  struct stat before;
  REQUIRE(::stat(path.c_str(), &before) == 0);
  wait_for_clock();
  flip(path, before.st_size - 1);
  const timespec times[] = {before.st_atim, before.st_mtim};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

struct Opened {
  TempDir dir;
  Checkpoint checkpoint;
  Opened() {
    make_gpt_oss().write(dir / "ckpt");
    Problems problems;
    checkpoint = open_checkpoint(dir / "ckpt", problems);
    problems.throw_if_any();
  }
  const std::string& file() const { return checkpoint.shards.front().path; }
};

}  // namespace

TEST_CASE("a shard that is changed in place is noticed, also where its mtime is put back") {
  const Opened opened;
  const ShardReader reader(opened.checkpoint);
  reader.check_unchanged();
  change_in_place(opened.file());
  CHECK_THROWS_WITH(reader.check_unchanged(), Catch::Contains("changed while it was read; start again"));
}

TEST_CASE("config and index that are changed or removed are noticed") {
  const Opened opened;
  const std::string name = GENERATE(config_name, index_name), path = opened.dir / ("ckpt/" + name);
  const ShardReader reader(opened.checkpoint);
  if (GENERATE(true, false))
    change_in_place(path);
  else
    std::filesystem::remove(path);
  CHECK_THROWS_WITH(reader.check_unchanged(), Catch::StartsWith(name + ": "));
}

TEST_CASE("a hard link of a shard, made, removed or made again, is no change") {
  Opened opened;
  const auto link = [&] { REQUIRE(::link(opened.file().c_str(), (opened.dir / "link").c_str()) == 0); };
  const auto unlink = [&] { REQUIRE(::unlink((opened.dir / "link").c_str()) == 0); };
  {
    const ShardReader reader(opened.checkpoint);
    wait_for_clock();
    link();
    reader.check_unchanged();
  }
  Problems problems;
  opened.checkpoint = open_checkpoint(opened.dir / "ckpt", problems);
  const ShardReader reader(opened.checkpoint);
  wait_for_clock();
  unlink();
  link();
  reader.check_unchanged();
  unlink();
  reader.check_unchanged();
}
