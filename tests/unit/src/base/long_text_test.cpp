#include "src/base/long_text.h"

#include <catch2/catch.hpp>

#include "src/base/error.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

TEST_CASE("a long text is the same in a file and in memory, also where blocks meet") {
  const TempDir dir;
  std::string text(size_t(text_block) * 2 + 100, 'a');
  text.replace(size_t(text_block) - 3, 6, "needle");
  write_text(dir / "text", text);
  const LongText in_file(open_text(dir / "text", int64_t(text.size()))), in_memory(text);
  for (const LongText* t : {&in_file, &in_memory}) {
    CHECK(t->bytes() == int64_t(text.size()));
    CHECK(t->find("needle") == text_block - 3);
    CHECK(t->find("needles") == -1);
    CHECK(t->read({text_block - 3, 6}) == "needle");
    std::string given;
    t->give({1, t->bytes() - 2}, [&](std::string_view part) { given += part; });
    CHECK(given == text.substr(1, text.size() - 2));
  }
  CHECK(to_hex(hash_of(open_read(dir / "text"))) == checksum_of(text));
  CHECK_THROWS_AS(open_text(dir / "text", 5), Error);
}
