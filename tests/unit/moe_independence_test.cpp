// The kernels that check the packer must not share its definition of a layout.
#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>

#include "src/base/file.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

const std::filesystem::path root = std::filesystem::path(testdata()).parent_path();

void collect_includes(const std::string& file, std::set<std::string>& seen) {
  if (!seen.insert(file).second || !std::filesystem::exists(root / file)) return;
  const std::string text = read_text((root / file).string(), 1 << 24);
  static const std::regex include("#include \"([^\"]+)\"");
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i) collect_includes((*i)[1], seen);
}

}  // namespace

TEST_CASE("no moe kernel includes a layout, directly or not, nor anything of src/") {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "kernels/moe")) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().lexically_relative(root).string();
    ++files;
    std::set<std::string> seen;
    collect_includes(name, seen);
    for (const std::string& file : seen) {
      INFO(name << " includes " << file);
      CHECK(file.find("layout") == std::string::npos);
      CHECK(file.rfind("src/", 0) != 0);
    }
  }
  CHECK(files > 10);
  std::set<std::string> seen;
  collect_includes("kernels/pack/device.h", seen);  // which does: the search itself works
  CHECK(seen.count("kernels/layouts/layout.h") == 1);
}
