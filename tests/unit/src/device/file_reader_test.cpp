// Reads parts of files into memory, through buffers that imitate a GPU's, and through a GPU's buffers.
#include "src/device/file_reader.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "kernels/pack/device.h"
#include "src/base/checksum.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

namespace {

constexpr int64_t file_bytes = 3 * FileReader::piece + 777;

std::vector<uint8_t> random_file(const std::string& path) {
  std::vector<uint8_t> data(file_bytes);
  uint32_t state = 1;
  for (uint8_t& byte : data) byte = uint8_t((state = state * 1664525 + 1013904223) >> 24);
  write_text(path, std::string_view(reinterpret_cast<const char*>(data.data()), data.size()));
  return data;
}

/// The copy is made in wait(). Until then nothing may change its buffer.
struct LateUpload : Upload {
  std::vector<uint8_t> memory[buffers];
  uint8_t* to[buffers] = {};
  int64_t bytes[buffers] = {};
  LateUpload() {
    for (auto& m : memory) m.resize(FileReader::piece);
  }
  uint8_t* buffer(int i) override { return memory[i].data(); }
  void copy(int i, uint8_t* target, int64_t count) override {
    if (to[i]) throw std::logic_error("a buffer is used again before its copy is done");
    to[i] = target, bytes[i] = count;
  }
  void wait(int i) override {
    if (to[i]) std::copy_n(memory[i].data(), bytes[i], std::exchange(to[i], nullptr));
  }
};

/// Each copy takes longer than the check of another copy's result.
struct SlowUpload : LateUpload {
  void wait(int i) override {
    if (to[i]) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    LateUpload::wait(i);
  }
};

/// Records the lengths of the copies of all threads.
struct CountingUpload : LateUpload {
  CountingUpload(std::mutex& m, std::vector<int64_t>& l) : mutex(m), lengths(l) {}
  void copy(int i, uint8_t* target, int64_t count) override {
    const std::lock_guard lock(mutex);
    lengths.push_back(count);
    LateUpload::copy(i, target, count);
  }
  std::mutex& mutex;
  std::vector<int64_t>& lengths;
};

/// Reads whole, odd and hashed parts, in two concurrent requests.
void read_runs(FileReader& reader, const std::string& path, const std::vector<uint8_t>& data) {
  const std::pair<int64_t, int64_t> runs[] = {
      {0, file_bytes}, {1, 1}, {4095, 2}, {5, file_bytes - 6}, {file_bytes - 1, 1}};
  for (const bool hashed : {false, true}) {
    std::vector<std::vector<uint8_t>> targets;
    std::vector<FilePart> parts;
    XXH128_canonical_t hashes[std::size(runs) + 1];
    for (const auto& [offset, bytes] : runs) {
      targets.emplace_back(bytes);
      parts.push_back({path, offset, bytes, targets.back().data()});
      if (hashed) parts.back().hash = hashes[targets.size() - 1].digest;
    }
    if (hashed) parts.push_back({path, 3, file_bytes - 3, nullptr, hashes[std::size(runs)].digest});
    std::vector<uint8_t> other(file_bytes);
    const int64_t first = reader.begin(parts), second = reader.begin({{path, 0, file_bytes, other.data()}});
    reader.finish(second);
    reader.finish(first);
    CHECK(other == data);
    for (size_t i = 0; i < std::size(runs); ++i) {
      const auto [offset, bytes] = runs[i];
      CHECK(std::equal(targets[i].begin(), targets[i].end(), data.begin() + offset));
      if (hashed) CHECK(XXH128_isEqual(XXH128_hashFromCanonical(&hashes[i]), hash_bytes(data.data() + offset, bytes)));
    }
    if (hashed)
      CHECK(
          XXH128_isEqual(XXH128_hashFromCanonical(std::end(hashes) - 1), hash_bytes(data.data() + 3, file_bytes - 3)));
  }
}

}  // namespace

TEST_CASE("parts of files come into memory, by one thread and by several") {
  const TempDir dir;
  const auto data = random_file(dir / "file");
  for (const int threads : {1, 3}) {
    FileReader direct(threads), buffered(threads, [] { return std::make_unique<LateUpload>(); });
    read_runs(direct, dir / "file", data);
    read_runs(buffered, dir / "file", data);
  }
}

TEST_CASE("a part that is hashed is there when all its copies are done") {
  const TempDir dir;
  const auto data = random_file(dir / "file");
  std::vector<uint8_t> target(file_bytes);
  XXH128_canonical_t hash;
  FileReader reader(1, [] { return std::make_unique<SlowUpload>(); });
  for (const int64_t bytes : {file_bytes, file_bytes - 777, file_bytes}) {  // the last copy may be from either buffer
    std::fill(target.begin(), target.end(), uint8_t(0));
    reader.finish(reader.begin({{dir / "file", 0, bytes, target.data(), hash.digest}}));
    CHECK(std::equal(target.begin(), target.begin() + bytes, data.begin()));
  }
}

TEST_CASE("a part is read in pieces that end where the file's blocks end") {
  const TempDir dir;
  const auto data = random_file(dir / "file");
  std::vector<uint8_t> target(file_bytes - 5);
  XXH128_canonical_t hash;
  for (uint8_t* const digest : {static_cast<uint8_t*>(nullptr), hash.digest}) {
    std::mutex mutex;
    std::vector<int64_t> lengths;
    FileReader reader(1, [&] { return std::make_unique<CountingUpload>(mutex, lengths); });
    reader.finish(reader.begin({{dir / "file", 5, file_bytes - 5, target.data(), digest}}));
    CHECK(lengths == std::vector<int64_t>{FileReader::piece - 5, FileReader::piece, FileReader::piece, 777});
    CHECK(std::equal(target.begin(), target.end(), data.begin() + 5));
  }
}

TEST_CASE("pieces are half as long if there are threads for several processes") {
  const TempDir dir;
  const auto data = random_file(dir / "file");
  for (const int threads : {FileReader::one_process, FileReader::one_process + 1}) {
    const bool several = threads > FileReader::one_process;
    std::vector<uint8_t> target(file_bytes);
    std::mutex mutex;
    std::vector<int64_t> lengths;
    FileReader reader(threads, [&] { return std::make_unique<CountingUpload>(mutex, lengths); });
    reader.finish(reader.begin({{dir / "file", 0, file_bytes, target.data()}}));
    CHECK(lengths.size() == (several ? 7 : 4));
    CHECK(*std::max_element(lengths.begin(), lengths.end()) == (several ? 2 << 20 : 4 << 20));
    CHECK(reader.counted().read == file_bytes);
    CHECK(target == data);
  }
}

TEST_CASE("what fails is said of its request alone") {
  const TempDir dir;
  const auto data = random_file(dir / "file");
  std::vector<uint8_t> target(file_bytes);
  bool broken = true;
  const auto open = [&]() -> std::unique_ptr<Upload> {
    if (broken) throw DeviceError("no memory can be locked");
    return std::make_unique<LateUpload>();
  };
  FileReader reader(2, open);
  const FilePart whole{dir / "file", 0, file_bytes, target.data()};
  CHECK_THROWS_WITH(reader.finish(reader.begin({whole})), "no memory can be locked");
  broken = false;
  const int64_t right = reader.begin({whole}), cut = reader.begin({whole});
  const FilePart beyond{dir / "file", file_bytes - 5, 10, target.data()};
  CHECK_THROWS_WITH(reader.begin({whole, beyond}), Catch::Contains("file: ends at byte") && Catch::Contains(" 5 more"));
  reader.finish(cut);
  CHECK_THROWS_WITH(reader.finish(cut), Catch::Contains("no request"));
  reader.finish(right);
  CHECK(target == data);
  CHECK_THROWS_WITH(reader.begin({{dir / "none", 0, 1, target.data()}}), Catch::Contains("none"));
}

TEST_CASE("files that are read stay in the page cache if memory has room for what is expected") {
  const TempDir dir;
  const auto data = random_file(dir / "file");
  const Fd file = open_read(dir / "file");
  std::vector<uint8_t> target(file_bytes);
  const auto read = [&](int64_t room, int64_t expected) {
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    FileReader reader(3, {}, CacheRoom(PageCache::automatic, room));
    if (expected) reader.expect(expected);
    reader.finish(reader.begin({{dir / "file", 0, file_bytes, target.data()}}));
    CHECK(target == data);
    return reader.cached();
  };
  if (read(0, 0).before > 0) return;   // on tmpfs, files are always cached
  constexpr int64_t small = 64 << 10;  // smaller reads use the page cache
  const CachedBytes none = read(file_bytes / 2, 0), some = read(2 * file_bytes, 0),
                    all = read(2 * file_bytes, file_bytes), larger = read(2 * file_bytes, int64_t(1) << 60);
  CHECK((none.read == file_bytes && none.before == 0 && none.now < small));
  for (const CachedBytes& kept : {some, all}) {
    CHECK((kept.read == file_bytes && kept.before == 0));
    CHECK(kept.now > file_bytes / 2);  // the kernel may drop pages at any time
  }
  CHECK(larger.now < small);
  read(2 * file_bytes, 0);
  FileReader second(3, {}, CacheRoom(PageCache::no));
  second.finish(second.begin({{dir / "file", 0, file_bytes, target.data()}}));
  CHECK(second.cached().before > file_bytes / 2);
  CHECK(second.cached().now == second.cached().before);
}

TEST_CASE("all of a file on tmpfs counts as cached") {
  const Fd fd(::memfd_create("file", MFD_CLOEXEC), "memory");
  std::vector<uint8_t> target(file_bytes);
  fd.write(target.data(), file_bytes, 0);
  FileReader reader(3);
  reader.finish(reader.begin({{fd.proc_path(), 0, file_bytes, target.data()}}));
  const CachedBytes found = reader.cached();
  CHECK((found.read == file_bytes && found.before == file_bytes && found.now == file_bytes));
}

TEST_CASE("what no file has is refused before pieces are made of it") {
  const TempDir dir;
  random_file(dir / "file");
  std::vector<uint8_t> target(1);
  FileReader reader(1);
  for (const int64_t bytes : {int64_t(1) << 40, INT64_MAX / 2, INT64_MAX})
    CHECK_THROWS_WITH(reader.begin({{dir / "file", 0, bytes, target.data()}}), Catch::Contains("file: ends at byte"));
  for (const int64_t offset : {file_bytes, INT64_MAX / 2, INT64_MAX - 1})
    CHECK_THROWS_WITH(reader.begin({{dir / "file", offset, 1, target.data()}}), Catch::Contains("1 more expected"));
}

TEST_CASE("a reader that is closed begins nothing more") {
  const TempDir dir;
  random_file(dir / "file");
  std::vector<uint8_t> target(file_bytes);
  std::atomic<int> pieces = 0;
  struct Counted final : LateUpload {
    std::atomic<int>& pieces;
    explicit Counted(std::atomic<int>& p) : pieces(p) {}
    uint8_t* buffer(int i) override { return ++pieces, LateUpload::buffer(i); }
  };
  {
    FileReader reader(1, [&] { return std::make_unique<Counted>(pieces); });
    reader.begin({500, FilePart{dir / "file", 0, file_bytes, target.data()}});
  }
  CHECK(pieces < 1000);
}

TEST_CASE("parts of files come into memory that a GPU reaches", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const TempDir dir;
  const auto data = random_file(dir / "file");
  const auto device = open_cuda(0);
  uint8_t* const target = device->allocate(file_bytes);
  FileReader reader(3, [] { return open_upload(0, FileReader::piece); });
  reader.finish(reader.begin({{dir / "file", 0, 100, target}, {dir / "file", 100, file_bytes - 100, target + 100}}));
  CHECK(std::equal(data.begin(), data.end(), target));
  device->release(target);
}
