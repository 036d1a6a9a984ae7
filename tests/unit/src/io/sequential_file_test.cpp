#include "src/io/sequential_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <string>

using namespace mxfp4;

namespace {

/// Writes `total` bytes in pieces of at most `piece` in `dir`, and compares them.
void check_written(const std::string& dir, int64_t total, int64_t piece, bool preallocated) {
  CAPTURE(dir, total, piece, preallocated);
  std::string name = dir + "/mxfp4-sequential-XXXXXX";
  const int fd = ::mkstemp(name.data());
  REQUIRE(fd >= 0);
  if (preallocated) REQUIRE(::ftruncate(fd, total) == 0);
  std::string want(size_t(total), '\0');
  for (size_t i = 0; i < want.size(); ++i) want[i] = char(i % 251);
  SequentialFile file(Fd(fd, name));
  for (int64_t at = 0; at < total; at += piece) {
    const int64_t bytes = std::min(piece, total - at);
    std::memcpy(file.next(), want.data() + at, size_t(bytes));
    file.append(bytes);
  }
  file.finish();
  CHECK((read_text(name, total) == want));
  std::filesystem::remove(name);
}

}  // namespace

TEST_CASE("a sequential file holds what was appended, on disk and in memory") {
  const int64_t mib = 1 << 20;
  for (const std::string& dir : {std::filesystem::temp_directory_path().string(), std::string("/dev/shm")})
    for (int64_t total : {int64_t(0), int64_t(1), int64_t(4095), int64_t(4096), int64_t(4097), 4 * mib, 4 * mib + 1,
                          5 * mib - 1, 9 * mib + 4096, 12 * mib + 7})
      for (int64_t piece : {int64_t(7777), mib})
        for (bool preallocated : {false, true}) check_written(dir, total, piece, preallocated);
}
