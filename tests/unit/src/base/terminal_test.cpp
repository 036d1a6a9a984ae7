// Line breaks in text, and the appearance of options and numbers.
#include "src/base/terminal.h"

#include <catch2/catch.hpp>

#include "src/base/log.h"

using namespace mxfp4;

TEST_CASE("a number stays with its unit, and a command in quotes in one piece") {
  CHECK(wrapped("1.13 MB in all, in 0.1 s (11.2 MB/s)", 12) == "1.13 MB in\nall, in\n0.1 s\n(11.2 MB/s)");
  CHECK(wrapped("18 tensors, of", 9) == "18 tensors,\nof");
  CHECK(wrapped("run 'a b c' then 3", 11) == "run 'a b c'\nthen 3");
  CHECK(wrapped("ends with 12", 9) == "ends with\n12");
}

TEST_CASE("amounts, rates and counts") {
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(999'499) == "999 kB");
  CHECK(human_bytes(999'600) == "1 MB");
  CHECK(human_rate(1'130'000, 0.1) == "11.3 MB/s");
  CHECK(human_rate(4'200'000'000, 2) == "2.1 GB/s");
  CHECK(human_rate(1000, 0) == "1 MB/s");
  CHECK(counted(0, "file") == "0 files");
  CHECK(counted(1, "file") == "1 file");
  CHECK(counted(2, "file") == "2 files");
}
