// More files than the process may open at once.
#include "src/io/open_files.h"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

using namespace mxfp4;

TEST_CASE("of many files few are open, and those in use stay so") {
  const TempDir dir;
  for (int i = 0; i < 5; ++i) write_text(dir / std::to_string(i), std::to_string(i));
  std::vector<size_t> opened;
  int closed = 0;
  const auto open = [&](size_t i) {
    opened.push_back(i);
    return open_read(dir / std::to_string(i));
  };
  OpenFiles files(
      5, open, [&](DirectFile&) { ++closed; }, 2);
  const auto first_byte = [&](size_t i) {
    char c;
    files.get(i)->read(&c, 1, 0);
    return c;
  };
  const auto used = files.get(0);
  for (size_t i = 0; i < 5; ++i) CHECK(first_byte(i) == char('0' + i));
  CHECK(opened == std::vector<size_t>{0, 1, 2, 3, 4});
  CHECK(closed == 3);
  CHECK(used->fd().get() >= 0);
  CHECK(first_byte(0) == '0');
  CHECK(first_byte(4) == '4');
  CHECK(opened.size() == 5);
  CHECK(first_byte(1) == '1');
  CHECK(opened.back() == 1);
}
