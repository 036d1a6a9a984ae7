// Lists of problems.
#include "src/base/error.h"

#include <catch2/catch.hpp>

using namespace mxfp4;

TEST_CASE("of each kind of problem a hundred lines are kept and the others counted") {
  Problems problems;
  for (int i = 0; i < 250; ++i) {
    problems.error("file", "missing {}", i);
    if (i < 100) problems.error("file", "wrong {}", i);
  }
  problems.error("file", "last");
  const std::vector<std::string> lines = problems.errors();
  CHECK(problems.count() == 351);
  REQUIRE(lines.size() == 202);
  CHECK(lines[0] == "file: missing 0");
  CHECK(lines[198] == "file: missing 99");
  CHECK(lines[199] == "... and 150 more of the same kind");
  CHECK(lines[200] == "file: wrong 99");
  CHECK(lines[201] == "file: last");
}
