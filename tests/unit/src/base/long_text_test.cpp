#include "src/base/long_text.h"

#include <catch2/catch.hpp>

#include "src/base/error.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

TEST_CASE("a long text is given in blocks, and hashed so") {
  const TempDir dir;
  std::string text(size_t(text_block) * 2 + 100, 'a');
  text.replace(size_t(text_block) - 3, 6, "needle");
  write_text(dir / "text", text);
  std::string given;
  int blocks = 0;
  give_text(open_read(dir / "text"), [&](std::string_view part) {
    given += part;
    ++blocks;
  });
  CHECK(given == text);
  CHECK(blocks == 3);
  CHECK(to_hex(hash_of(open_read(dir / "text"))) == checksum_of(text));
  CHECK_THROWS_AS(open_text(dir / "text", 5), Error);
}
