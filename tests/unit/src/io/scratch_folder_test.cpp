// The private folder for a run's temporary files.
#include "src/io/scratch_folder.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

using namespace mxfp4;
namespace fs = std::filesystem;

namespace {

fs::path private_folder(const fs::path& path) {
  fs::create_directories(path);
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

}  // namespace

TEST_CASE("a folder that a killed program made is removed; one that is used, or has other files, stays") {
  const TempDir dir;
  const fs::path place = dir / "tmp";
  fs::create_directory(place);
  ::setenv("TMPDIR", place.c_str(), 1);
  const fs::path killed_at_once = private_folder(place / "mxfp4-pack.aaaaaa");
  const fs::path killed_later = private_folder(place / "mxfp4-pack.bbbbbb");
  fs::create_directory(killed_later / ScratchFolder::only_name);
  const fs::path foreign = private_folder(place / "mxfp4-pack.cccccc");
  std::ofstream(foreign / "mine") << "mine";
  {
    const ScratchFolder first;
    CHECK_FALSE(fs::exists(killed_at_once));
    CHECK_FALSE(fs::exists(killed_later));
    CHECK(fs::exists(foreign / "mine"));
    const ScratchFolder second;
    CHECK(fs::exists(first.path()));
    CHECK(second.path() != first.path());
  }
  CHECK(std::distance(fs::directory_iterator(place), fs::directory_iterator()) == 1);
  ::unsetenv("TMPDIR");
}
