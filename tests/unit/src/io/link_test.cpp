#include "src/io/link.h"

#include <catch2/catch.hpp>

#include "tests/support/make_checkpoint.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace fs = std::filesystem;

TEST_CASE("shards without experts are linked or copied whole and keep their names") {
  for (const bool link : {false, true}) {
    const TempDir dir;
    make_gpt_oss().write(dir / "in");
    ConvertOptions o = conversion(dir / "in", dir / "out", "vllm");
    o.link = link;
    convert(o);
    const std::string from = dir / "in/model-2.safetensors", to = dir / "out/model-2.safetensors";
    REQUIRE(fs::is_regular_file(to) == link);
    if (!link) continue;
    CHECK(contents_of(dir / "in").at("model-2.safetensors") == contents_of(dir / "out").at("model-2.safetensors"));
    CHECK(is_right(dir / "out", dir / "in"));
    run_unpack(dir / "out", dir / "back");
    CHECK(contents_of(dir / "back") == contents_of(dir / "in"));
    const auto index = contents_of(dir / "out").at("model.safetensors.index.json");
    CHECK(index.find("\"model.norm.weight\": \"model-2.safetensors\"") != std::string::npos);
  }
}

TEST_CASE("a packed output has no shards to link") {
  const TempDir dir;
  make_gpt_oss().write(dir / "in");
  convert(conversion(dir / "in", dir / "out", "vllm"));
  ConvertOptions o = conversion(dir / "out", dir / "again", "sglang");
  o.link = true;
  CHECK_THROWS_AS(convert(o), Error);
}
