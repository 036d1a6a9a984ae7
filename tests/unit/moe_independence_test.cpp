// The kernels that check the packer must not share its definition of a layout.
#include <catch2/catch.hpp>
#include <set>

#include "tests/support/includes.h"

using namespace mxfp4;

namespace {

void collect_includes(const std::string& file, std::set<std::string>& seen) {
  if (!seen.insert(file).second || !std::filesystem::exists(source_root() / file)) return;
  for (const std::string& name : includes_of(file)) collect_includes(name, seen);
}

}  // namespace

TEST_CASE("no moe kernel includes a layout, directly or not, nor anything of src/") {
  const auto kernels = sources_below("kernels/moe");
  CHECK(kernels.size() > 10);
  for (const std::string& kernel : kernels) {
    std::set<std::string> seen;
    collect_includes(kernel, seen);
    for (const std::string& file : seen) {
      INFO(kernel << " includes " << file);
      CHECK(file.find("layout") == std::string::npos);
      CHECK(file.rfind("src/", 0) != 0);
    }
  }
  std::set<std::string> seen;
  collect_includes("kernels/pack/device.h", seen);  // device.h includes layouts: the search works
  CHECK(seen.count("kernels/layouts/layout.h") == 1);
}
