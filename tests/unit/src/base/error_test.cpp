// Lists of problems, and what errors say.
#include "src/base/error.h"

#include <catch2/catch.hpp>
#include <cerrno>

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

TEST_CASE("what another run took away is said to be that") {
  const auto said = [](const std::string& file, int error) -> std::string {
    try {
      fail_errno(file, "cannot open", error);
    } catch (const Error& e) {
      return e.lines.front();
    }
  };
  const std::string hidden = "/models/.out.mxfp4-pack.partial/packed";
  CHECK(said(hidden, ENOENT).ends_with("No such file or directory; another run of mxfp4-pack has moved or removed it"));
  CHECK(said(hidden, EIO).ends_with("Input/output error"));
  CHECK(said("/models/out/packed", ENOENT).ends_with("No such file or directory"));
}
