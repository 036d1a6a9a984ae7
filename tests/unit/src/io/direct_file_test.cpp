#include "src/io/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "kernels/pack/device.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/device/pipeline.h"
#include "src/io/cached_pages.h"

using namespace mxfp4;

namespace {

constexpr int64_t total = (int64_t(7) << 20) + 1234;

/// A new file in `dir`, which is removed at the end.
class Temporary {
 public:
  explicit Temporary(const std::string& dir) : name_(dir + "/mxfp4-direct-XXXXXX") {
    const int fd = ::mkstemp(name_.data());
    REQUIRE(fd >= 0);
    ::close(fd);
  }
  ~Temporary() { std::filesystem::remove(name_); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

std::string content() {
  std::mt19937 random(7);
  std::string text(size_t(total), '\0');
  for (char& c : text) c = char(random());
  return text;
}

/// Writes this text to `file` and syncs it.
Fd synced(const Temporary& file, const std::string& text) {
  Fd made = open_write(file.name());
  made.write(text.data(), total, 0);  // DirectFile uses the existing size
  made.sync();
  return made;
}

int64_t cached_pages(const Fd& fd) {
  void* map = ::mmap(nullptr, size_t(total), PROT_READ, MAP_SHARED, fd.get(), 0);
  std::vector<unsigned char> pages(size_t(total / 4096 + 1));
  REQUIRE(::mincore(map, size_t(total), pages.data()) == 0);
  ::munmap(map, size_t(total));
  return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
}

/// Succeeds if one of five tries does. The kernel may drop pages at any time, including this program's, which then
/// count as read.
template <typename Try>
bool in_some_try(const Try& holds) {
  for (int i = 0; i < 5; ++i)
    if (holds()) return true;
  return false;
}

/// Ranges that cover the file and end within pages or at their ends.
std::vector<std::pair<int64_t, int64_t>> ranges() {
  std::mt19937 random(11);
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t at = 0; at < total;) {
    const int64_t bytes =
        std::min<int64_t>(total - at, random() % 3 ? random() % 700000 + 1 : 4096 * (random() % 9 + 1));
    out.emplace_back(at, bytes);
    at += bytes;
  }
  return out;
}

}  // namespace

TEST_CASE("ranges written by several threads make the file, read back in any way") {
  const std::string want = content();
  for (const char* dir : {"/tmp", "/dev/shm"}) {
    if (!std::filesystem::is_directory(dir)) continue;
    INFO(dir);
    const Temporary file(dir);
    Fd fd = open_write(file.name());
    REQUIRE(::ftruncate(fd.get(), total) == 0);
    DirectFile direct(std::move(fd));
    const auto list = ranges();
    run_jobs(int64_t(list.size()), 4, [&](Worker& worker, int64_t i) {
      const auto [at, bytes] = list[size_t(i)];
      uint8_t* data = worker.packed.reserve(bytes, i % 4 ? at : at + 64);  // one in four: other offset in the page
      std::memcpy(data, want.data() + at, size_t(bytes));
      direct.write(data, bytes, at);
    });
    std::string got(size_t(total), '\0');
    for (const auto& [at, bytes] : list) direct.read(got.data() + at, bytes, at);
    CHECK((got == want));
    direct.finish();
    CHECK((read_text(file.name(), total) == want));
  }
}

TEST_CASE("what is read from the disk is the same wherever it is to lie, and nothing beside it changes") {
  const std::string want = content();
  const Temporary file(std::filesystem::temp_directory_path());
  Fd made = synced(file, want);
  const DirectFile direct(open_read(file.name()));
  auto list = ranges();
  list.insert(list.end(), {{0, total}, {4096, 1 << 20}, {4095, 65538}, {123, total - 246}, {total - 70000, 70000}});
  Worker worker{open_cpu()};
  for (const int64_t shift : {0, 64}) {  // with the file's offset modulo a page, and with another
    ::posix_fadvise(made.get(), 0, 0, POSIX_FADV_DONTNEED);
    for (const auto& [at, bytes] : list) {
      std::string seen;
      uint8_t* const data = worker.source.reserve(bytes + 2 * 4096, at + shift) + 4096;
      std::memset(data - 1, 'x', size_t(bytes + 2));
      direct.read(data, bytes, at, [&](const uint8_t* block, int64_t size) { seen.append(block, block + size); });
      CHECK(std::memcmp(data, want.data() + at, size_t(bytes)) == 0);
      CHECK((data[-1] == 'x' && data[bytes] == 'x'));
      CHECK((seen == want.substr(size_t(at), size_t(bytes))));
    }
  }
}

TEST_CASE("what is read of a file that is to stay is in the page cache afterwards") {
  const Temporary file(std::filesystem::temp_directory_path());
  const std::string want = content();
  Fd made = synced(file, want);
  ::posix_fadvise(made.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (cached_pages(made) > 0) return;  // on tmpfs, files are always cached
  DirectFile direct(open_read(file.name()));
  CHECK(direct.cached_bytes(total, 0) == 0);
  direct.keep_reads(total);
  CHECK(in_some_try([&] {
    std::string got(size_t(total), '\0');
    direct.read(got.data(), total, 0);
    CHECK((got == want));
    return direct.cached_bytes(total, 0) == total;
  }));
  DirectFile another(open_read(file.name()));  // each thread's descriptor belongs to one file
  const Temporary other(std::filesystem::temp_directory_path());
  synced(other, std::string(want.rbegin(), want.rend()));
  DirectFile reversed(open_read(other.name()));
  reversed.keep_reads(total);
  ::posix_fadvise(reversed.fd().get(), 0, 0, POSIX_FADV_DONTNEED);
  std::string got(size_t(total), '\0');
  reversed.read(got.data(), total, 0);
  CHECK((got == std::string(want.rbegin(), want.rend())));
}

TEST_CASE("what is written to be kept is on the disk and in the page cache") {
  const Temporary file(std::filesystem::temp_directory_path());
  CHECK(in_some_try([&] {
    Fd made = synced(file, content());
    ::posix_fadvise(made.get(), 0, 0, POSIX_FADV_DONTNEED);
    DirectFile written(std::move(made), Writes::kept);
    if (written.is_on_tmpfs()) return true;
    CHECK(std::string(written.write_way().way) == "cached");
    written.write(content().data(), total, 0);
    written.finish();
    CHECK((read_text(file.name(), total) == content()));
    return cached_pages(open_read(file.name())) == total / 4096 + 1;
  }));
}

TEST_CASE("what an earlier run wrote is read from the disk") {
  const Temporary file(std::filesystem::temp_directory_path());
  Fd made = open_write(file.name());
  if (medium_of(made) == Medium::memory) return;
  made.write(content().data(), total, 0);
  CHECK(cached_pages(made) > total / 4096 / 2);
  CHECK(cached_pages(open_own(file.name())) == 0);
}

namespace {

/// Bytes that disks have read for this process.
int64_t disk_bytes() {
  std::ifstream io("/proc/self/io");
  for (std::string key; io >> key;)
    if (int64_t bytes; io >> bytes && key == "read_bytes:") return bytes;
  return -1;
}

/// The pages of a file that are cached before it is read.
struct Pattern {
  const char* name;
  bool (*is_cached)(int64_t page);
  double most_read;  // bytes read from disk per missing byte: a block is read past the cache as a whole
};
constexpr Pattern patterns[] = {
    {"none", [](int64_t) { return false; }, 1.01},
    {"every second MiB", [](int64_t page) { return page / 256 % 2 == 0; }, 1.01},
    {"all but every 16th page", [](int64_t page) { return page % 16 != 0; }, 1.01},
    {"all but one page in a MiB", [](int64_t page) { return page % 256 != 100; }, 1.01},
    {"every second page", [](int64_t page) { return page % 2 == 0; }, 2.01},
    {"all", [](int64_t) { return true; }, 0},
};

/// Reads these pages through the cache, without others around them.
void cache(const Fd& fd, const Pattern& pattern) {
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  char page[4096];
  for (int64_t i = 0; i * 4096 < total; ++i)
    if (pattern.is_cached(i)) REQUIRE(::pread(fd.get(), page, sizeof page, i * 4096) > 0);
}

}  // namespace

TEST_CASE("what is cached is not read from the disk, nothing is read twice, and the cache stays as it was") {
  const std::string want = content();
  const Temporary file(std::filesystem::temp_directory_path());
  Fd made = synced(file, want);
  ::posix_fadvise(made.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (cached_pages(made) > 0 || disk_bytes() < 0) return;  // tmpfs, or no byte counts
  for (const Pattern& pattern : patterns)
    for (const int64_t offset : {int64_t(0), int64_t(5000)}) {
      CAPTURE(pattern.name, offset);
      std::string got(size_t(total - offset), '\0');
      CHECK(in_some_try([&] {
        const Fd fd = open_read(file.name());
        cache(fd, pattern);
        const int64_t cached = cached_pages(fd), before = disk_bytes();
        const DirectFile direct(open_read(file.name()));
        direct.read(got.data(), total - offset, offset);
        const int64_t read = disk_bytes() - before, left = cached_pages(fd);
        CHECK((got == want.substr(size_t(offset))));
        return double(read) <= double(total - left * 4096) * pattern.most_read + 8192 && left <= cached &&
               left >= cached - cached / 8;
      }));
    }
}

TEST_CASE("another user's file is read through the cache, once") {
  if (::geteuid() != 0) return;
  const std::string want = content();
  const Temporary file(std::filesystem::temp_directory_path());
  Fd made = open_write(file.name());
  made.write(want.data(), total, 0);
  REQUIRE(::fchmod(made.get(), 0644) == 0);
  made.sync();
  CHECK(in_some_try([&] {
    ::posix_fadvise(made.get(), 0, 0, POSIX_FADV_DONTNEED);
    const int64_t before = disk_bytes();
    std::string got(size_t(total), '\0');
    REQUIRE(::seteuid(65534) == 0);
    CHECK(!tells_what_is_cached(open_read(file.name())));
    const DirectFile direct(open_read(file.name()));
    direct.read(got.data(), total, 0);
    REQUIRE(::seteuid(0) == 0);
    CHECK((got == want));
    return before < 0 || disk_bytes() - before <= total + 8192;
  }));
}

TEST_CASE("a read hands over every block once, in order, and each piece is hashed") {
  const std::string want = content();
  for (const char* dir : {"/tmp", "/dev/shm"})
    for (const bool cached : {true, false}) {
      if (!std::filesystem::is_directory(dir)) continue;
      CAPTURE(dir, cached);
      const Temporary file(dir);
      Fd made = synced(file, want);
      if (!cached) ::posix_fadvise(made.get(), 0, 0, POSIX_FADV_DONTNEED);
      const DirectFile direct(open_read(file.name()));
      for (const int64_t piece : {int64_t(1), int64_t(100), int64_t(4096), int64_t(700001), total - 5}) {
        const int64_t pieces = std::min((total - 5) / piece, int64_t(100'000)), bytes = pieces * piece;
        std::vector<Hash> hashes(static_cast<size_t>(pieces));
        for (const bool keep : {false, true}) {
          std::vector<HashedPiece> list;
          for (Hash& hash : hashes) list.push_back({piece, &hash});
          PieceHasher hasher(std::move(list));
          std::string blocks, kept(size_t(keep ? bytes : 0), '\0');
          direct.read(keep ? kept.data() : nullptr, bytes, 3, [&](const uint8_t* data, int64_t part) {
            hasher(data, part);
            blocks.append(reinterpret_cast<const char*>(data), size_t(part));
          });
          CHECK((blocks == want.substr(3, size_t(bytes))));
          if (keep) CHECK((kept == blocks));
          int64_t wrong = 0;
          for (int64_t i = 0; i < pieces; ++i)
            wrong += !XXH128_isEqual(hashes[size_t(i)], hash_bytes(want.data() + 3 + i * piece, piece));
          CHECK(wrong == 0);
        }
      }
    }
}

TEST_CASE("a write hands over every block once, in order, before it is in the file, and cuts no page") {
  const std::string want = content();
  for (const char* dir : {"/tmp", "/dev/shm"})
    for (const int64_t offset : {int64_t(0), int64_t(3)})
      for (const bool congruent : {true, false}) {
        if (!std::filesystem::is_directory(dir)) continue;
        CAPTURE(dir, offset, congruent);
        const Temporary file(dir);
        Fd made = open_write(file.name());
        REQUIRE(::ftruncate(made.get(), total + offset) == 0);
        const DirectFile direct(std::move(made));
        std::vector<uint8_t> memory(size_t(total) + 2 * 4096);
        uint8_t* from = memory.data() + (4096 - reinterpret_cast<uintptr_t>(memory.data()) % 4096);
        from += congruent ? offset : offset + 1;
        std::memcpy(from, want.data(), size_t(total));
        std::string blocks, got(size_t(total), '\0');
        int cut_pages = 0;
        direct.write(from, total, offset, [&](const uint8_t* data, int64_t part) {
          blocks.append(reinterpret_cast<const char*>(data), size_t(part));
          cut_pages += int64_t(blocks.size()) < total && (offset + int64_t(blocks.size())) % 4096 != 0;
        });
        CHECK((blocks == want));
        CHECK(cut_pages == 0);
        direct.read(got.data(), total, offset);
        CHECK((got == want));
      }
}

TEST_CASE("a file that ends early is an error by either way") {
  const Temporary file(std::filesystem::temp_directory_path());
  Fd made = open_write(file.name());
  REQUIRE(::ftruncate(made.get(), total) == 0);
  const DirectFile direct(open_read(file.name()));
  std::vector<uint8_t> to(size_t(total) + 1);
  CHECK_THROWS_AS(direct.read(to.data(), total + 1, 0), Error);
}
