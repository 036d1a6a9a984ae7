// A GPU accesses a file's bytes in the page cache, and no other bytes.
#include "src/device/page_cache_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "src/checkpoint/checkpoint.h"
#include "tests/support/program.h"

using namespace mxfp4;
#include "src/checkpoint/shard_reader.h"

namespace {

/// A device that does not pack, and counts the locked bytes.
class LockingDevice final : public Device {
 public:
  explicit LockingDevice(bool can_lock = true) : can_lock_(can_lock) {}
  std::string name() const override { return "locking"; }
  uint8_t* allocate(int64_t) override { return nullptr; }
  void release(uint8_t*) override {}
  void pack(std::span<const PackItem>, std::span<Checksum>) override {}
  void unpack(std::span<const UnpackItem>, std::span<PadReport>) override {}
  void compare(std::span<const CompareItem>, std::span<CompareReport>) override {}
  std::shared_ptr<void> lock(uint8_t* memory, int64_t bytes, bool writes) override {
    const long page = ::sysconf(_SC_PAGESIZE);
    CHECK(reinterpret_cast<uintptr_t>(memory) % uintptr_t(page) == 0);
    CHECK(bytes % page == 0);
    if (!can_lock_) return nullptr;
    ++*locked;
    if (writes) std::memset(memory, *memory, 1);  // the memory is writable
    return {memory, [count = locked](uint8_t*) { --*count; }};
  }
  const std::shared_ptr<int> locked = std::make_shared<int>(0);

 private:
  bool can_lock_;
};

std::string some_text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = char(i * 31 + i / 251);
  return text;
}

}  // namespace

TEST_CASE("a map to read holds a file's bytes, locked until it is gone") {
  const TempDir dir;
  const std::string text = some_text(100000);
  write_text(dir / "file", text);
  const Fd fd = open_read(dir / "file");
  LockingDevice device;
  for (const auto& [offset, bytes] : {std::pair(0, 100000), {1, 1}, {4096, 4096}, {5000, 70001}, {99999, 1}}) {
    const auto map = PageCacheMap::for_reading(device, fd, offset, bytes);
    REQUIRE(map);
    CHECK(*device.locked == 1);
    CHECK(std::memcmp(map->at(offset), text.data() + offset, size_t(bytes)) == 0);
  }
  CHECK(*device.locked == 0);
  LockingDevice refusing(false);
  CHECK(!PageCacheMap::for_reading(refusing, fd, 0, 100));
  CHECK(!PageCacheMap::for_reading(*open_cpu(), fd, 0, 100));
}

TEST_CASE("a file that became shorter is not mapped") {
  const TempDir dir;
  write_text(dir / "file", std::string(100000, 'x'));
  const Fd fd = open_read(dir / "file");
  REQUIRE(::truncate((dir / "file").c_str(), 20000) == 0);
  LockingDevice device;
  CHECK(!PageCacheMap::for_reading(device, fd, 10000, 50000));
  CHECK(*device.locked == 0);
}

TEST_CASE("maps to write leave what is beside them, and the file's size, as they are") {
  const TempDir dir("/dev/shm");
  if (!PageCacheMap::can_write()) {
    WARN("no large pages here: nothing is packed in place");
    return;
  }
  const std::string text = some_text((9 << 20) + 12345);
  const auto size = int64_t(text.size());
  const Fd fd = open_own(dir / "file");
  REQUIRE(::ftruncate(fd.get(), size) == 0);
  const int64_t ends[] = {777, 2 << 20, 3000001, 5 << 20, size};  // alternately by write() and in place
  int64_t begin = 0;
  LockingDevice device;
  std::vector<std::unique_ptr<PageCacheMap>> maps;  // neighbouring maps exist at the same time
  for (size_t i = 0; i < std::size(ends); begin = ends[i++]) {
    if (i % 2 == 0 && i + 1 < std::size(ends)) {
      fd.write(text.data() + begin, ends[i] - begin, begin);
      continue;
    }
    maps.push_back(PageCacheMap::for_writing(device, fd, begin, ends[i] - begin));
    REQUIRE(maps.back());
    std::memcpy(maps.back()->at(begin), text.data() + begin, size_t(ends[i] - begin));
  }
  CHECK(*device.locked == int(maps.size()));
  maps.clear();
  CHECK(*device.locked == 0);
  CHECK(read_text(dir / "file", size) == text);
  CHECK(fd.stat().st_blocks * 512 < size + 4096 + 1);  // no large page exceeds the file
}

TEST_CASE("nothing is mapped to write where it cannot be locked") {
  const TempDir dir("/dev/shm");
  const Fd fd = open_own(dir / "file");
  REQUIRE(::ftruncate(fd.get(), 4 << 20) == 0);
  LockingDevice refusing(false);
  CHECK(!PageCacheMap::for_writing(refusing, fd, 0, 4 << 20));
  CHECK(!PageCacheMap::for_writing(*open_cpu(), fd, 0, 4 << 20));
}

TEST_CASE("a file on a disk is not mapped to write, one in memory is not before it is large") {
  const TempDir memory("/dev/shm");
  LockingDevice device;
  Fd fd = open_own(memory / "small");
  REQUIRE(::ftruncate(fd.get(), 1000) == 0);
  CHECK(!map_to_write(device, DirectFile(std::move(fd)), 1000, 0));
  const TempDir dir;
  fd = open_own(dir / "file");
  REQUIRE(::ftruncate(fd.get(), 4 << 20) == 0);
  if (medium_of(fd) != Medium::memory) CHECK(!map_to_write(device, DirectFile(std::move(fd)), 4 << 20, 0));
}

TEST_CASE("shards are mapped where what is asked for lies together") {
  Problems problems;
  const Checkpoint checkpoint = open_checkpoint(tiny + "deepseek-v4", problems);
  const ShardReader reader(checkpoint);
  contents_of(tiny + "deepseek-v4");  // reads the files into the page cache
  LockingDevice device;
  std::map<int, std::vector<const Tensor*>> shards;
  for (const Tensor& t : checkpoint.tensors) shards[t.file].push_back(&t);
  const auto& one_shard = std::max_element(shards.begin(), shards.end(), [](const auto& a, const auto& b) {
                            return a.second.size() < b.second.size();
                          })->second;
  REQUIRE(one_shard.size() > 4);
  const auto [first, last] = std::minmax_element(
      one_shard.begin(), one_shard.end(), [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; });
  const TensorRange begin{*first, 0, 1}, end{*last, 0, 1}, whole{*last, 0, (*last)->bytes};
  CHECK(reader.map(device, std::vector{whole}));
  CHECK(!reader.map(device, std::vector{begin, end}));  // too many bytes between them
  CHECK(*device.locked == 0);
}
