// The order of modules in src/README.md: each module includes only itself and modules above it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "tests/support/includes.h"

using namespace mxfp4;

namespace {

struct Room {
  std::string folder, purpose;
};

std::vector<Room> read_rooms() {
  std::istringstream lines(read_text((source_root() / "src/README.md").string(), 1 << 20));
  static const std::regex row("\\| `((?:kernels|src)[a-z0-9_/]*)` \\| (.+) \\|");
  std::vector<Room> rooms;
  std::smatch m;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, m, row)) rooms.push_back({m[1], m[2]});
  return rooms;
}

const std::vector<Room>& all_rooms() {
  static const std::vector<Room> rooms = read_rooms();
  return rooms;
}

/// The place of a file's module in the order; -1 if the file is in no module.
int rank_of(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const std::vector<Room>& rooms = all_rooms();
  const auto at = std::find_if(rooms.begin(), rooms.end(), [&](const Room& room) { return room.folder == folder; });
  return at == rooms.end() ? -1 : int(at - rooms.begin());
}

bool may_include(const std::string& file, const std::string& included) {
  const int to = rank_of(included);
  return to >= 0 && to <= rank_of(file);
}

/// The number of files in the longest chain of includes from this file. known: results of earlier calls.
int height_of(const std::string& file, std::map<std::string, int>& known) {
  if (const auto at = known.find(file); at != known.end()) return at->second;
  int below = 0;
  for (const std::string& included : includes_of(file)) below = std::max(below, height_of(included, known));
  return known[file] = 1 + below;
}

}  // namespace

TEST_CASE("an include goes to the same module or one above it") {
  CHECK(may_include("src/plan/plan.h", "src/plan/canonical.h"));
  CHECK(may_include("src/plan/plan.h", "src/base/json.h"));
  CHECK(may_include("src/base/checksum.h", "kernels/pack/device.h"));
  CHECK(!may_include("src/base/json.h", "src/plan/plan.h"));
  CHECK(!may_include("kernels/moe/check/moe_kernel.h", "src/base/json.h"));
  CHECK(!may_include("src/plan/plan.h", "json.h"));
  CHECK(!may_include("src/plan/plan.h", "../base/json.h"));
  CHECK(!may_include("src/plan/plan.h", "src/plan/../base/json.h"));
}

TEST_CASE("every file is in a module and includes nothing below it") {
  size_t includes = 0;
  for (const std::string folder : {"kernels", "src"})
    for (const std::string& file : sources_below(folder)) {
      INFO(file);
      CHECK(rank_of(file) >= 0);
      for (const std::string& included : includes_of(file)) {
        INFO("includes " << included);
        CHECK(may_include(file, included));
        CHECK(std::filesystem::exists(source_root() / included));
        ++includes;
      }
    }
  CHECK(includes > 400);
}

TEST_CASE("no chain of includes is longer than ten files") {
  std::map<std::string, int> known;
  for (const std::string folder : {"kernels", "src"})
    for (const std::string& file : sources_below(folder)) {
      INFO(file);
      CHECK(height_of(file, known) <= 10);
    }
  CHECK(height_of("src/main.cpp", known) >= 5);
}

TEST_CASE("a module's CMakeLists.txt begins with its purpose in the list") {
  for (const Room& room : all_rooms()) {
    if (room.folder == "src") continue;
    INFO(room.folder);
    const std::string cmake = read_text((source_root() / room.folder / "CMakeLists.txt").string(), 1 << 20);
    CHECK(cmake.substr(0, cmake.find('\n')) == "# " + room.purpose);
  }
}
