// The staging directory and the folder of parts, while other processes make and remove them.
#include "src/io/stage.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "src/base/error.h"
#include "src/io/parts.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

TEST_CASE("a folder that another process makes after it was looked for is no stranger's") {
  const TempDir dir;
  const Folder above = Folder::open(dir / "");
  const HeldFolder stage(above, stage_beside("out")), parts(above, staged_parts);
  REQUIRE((!stage && !parts));
  above.make(stage_beside("out"));
  above.make(staged_parts);
  CHECK(why_no_stage(stage).empty());
  CHECK_NOTHROW(check_own_parts(parts));
  CHECK(read_parts(parts).empty());
}

TEST_CASE("a file or a link in the place of a folder is refused") {
  const TempDir dir;
  const Folder above = Folder::open(dir / "");
  SECTION("file") {
    std::ofstream(dir / stage_beside("out")) << 1;
    std::ofstream(dir / staged_parts) << 1;
  }
  SECTION("link") {
    std::filesystem::create_directory_symlink(".", dir / stage_beside("out"));
    std::filesystem::create_directory_symlink(".", dir / staged_parts);
  }
  CHECK(!why_no_stage({above, stage_beside("out")}).empty());
  CHECK_THROWS_AS(check_own_parts({above, staged_parts}), Error);
}
