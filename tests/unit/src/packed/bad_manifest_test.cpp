// Manifests that their own checksum covers, and that are refused all the same.
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>

#include "tests/fuzz/targets.h"
#include "tests/support/program.h"
#include "tests/support/try_checkpoint.h"

using namespace mxfp4;
using Catch::Contains;

namespace {

/// GPT-OSS in two ranks, as JSON.
Json good_manifest() {
  const TempDir dir;
  make_gpt_oss().write(dir / "ckpt");
  ConvertOptions o = marlin(dir);
  o.tp_size = 2;
  convert(o);
  return parse_json(read_text(dir / "out/mxfp4-pack.json", 1 << 20), "manifest");
}

template <class Change>
std::string refusal_of(const Json& good, Change change) {
  Json changed = good;
  change(changed);
  return fmt::format("{}", fmt::join(fuzz::read_manifest_text(changed.dump(1)), "\n"));
}

/// The entry of a source tensor that the second rank's first tensor repeats.
Json& repeated(Json& manifest) { return manifest["sets"][0]["tensors"][1]["source"][0]; }

}  // namespace

TEST_CASE("what a manifest lists again must be the same") {
  const Json good = good_manifest();
  const auto said = [&](auto change) { return refusal_of(good, change); };
  CHECK(said([](Json&) {}) == "");
  const auto second_entry = Contains("is listed twice, not the same");
  CHECK_THAT(said([](Json& m) { repeated(m)["xxh3_128"] = std::string(32, 'a'); }), second_entry);
  CHECK_THAT(said([](Json& m) { repeated(m)["dtype"] = "I8"; }), second_entry);
  CHECK_THAT(said([](Json& m) { std::swap(repeated(m)["shape"][1], repeated(m)["shape"][2]); }), second_entry);
  CHECK_THAT(said([](Json& m) { repeated(m)["file"] = "model-2.safetensors"; }), second_entry);
  CHECK_THAT(said([](Json& m) { m["copied"].push_back(m["copied"][0]); }), Contains("is listed twice"));
  CHECK_THAT(said([](Json& m) { m["sets"][0]["tensors"][1]["rank"] = 0; }), Contains("is listed twice"));
}

TEST_CASE("files of a manifest that would lie in one place are refused") {
  const Json good = good_manifest();
  const auto said = [&](auto change) { return refusal_of(good, change); };
  for (const char* name : {"config.json", "model.safetensors.index.json"})
    CHECK_THAT(said([&](Json& m) { m["source"]["files"][0]["name"] = name; }),
               Contains("is no name of a file with tensors"));
  CHECK_THAT(said([](Json& m) { m["sets"][0]["tensors"][1]["file"] = m["sets"][0]["tensors"][0]["file"]; }),
             Contains("is listed for two sets or ranks"));
  const auto second_set = [](Json& m) {
    m["sets"].push_back(m["sets"][0]);
    m["sets"][1]["engine"] = "sglang";
  };
  CHECK_THAT(said(second_set), Contains("is listed for two sets or ranks"));
  CHECK_THAT(said([](Json& m) { m["copied"][0]["copy"] = m["sets"][0]["tensors"][0]["file"]; }),
             Contains("is listed for two sets or ranks"));
}

TEST_CASE("what a later program's manifest may need is refused by name") {
  const Json good = good_manifest();
  const auto said = [&](auto change) { return refusal_of(good, change); };
  CHECK(said([](Json& m) { m["needs"] = Json::array(); }) == "");
  CHECK(said([](Json& m) { m["parts"] = Json::array({"a"}); }) == "");
  CHECK(said([](Json& m) {
          m["files"].push_back({{"name", "a"}, {"kind", "b"}, {"bytes", 0}, {"xxh3_128", "c"}});
        }) == "");
  CHECK(said([](Json& m) { m["needs"] = {"parts"}; }) ==
        "mxfp4-pack.json: needs[0]: 'parts', which this program does not know; use a newer one");
  CHECK_THAT(said([](Json& m) { m["sets"][0]["needs"] = {"x"}; }), Contains("sets[0].needs[0]: 'x', which"));
  CHECK_THAT(said([](Json& m) { m["format_version"] = 4; }), Contains("this program knows 3"));
  CHECK_THAT(said([](Json& m) { m["format_version"] = 2; }), Contains("made by a pre-release (format 2); convert"));
}

TEST_CASE("a manifest's paths stay below its directory") {
  const Json good = good_manifest();
  const auto said = [&](auto change) { return refusal_of(good, change); };
  for (const char* name : {"../evil", "/etc/passwd", "packed//a", ""}) {
    const auto unsafe = Contains("unsafe file name");
    CHECK_THAT(said([&](Json& m) { m["sets"][0]["canary"] = name; }), unsafe);
    CHECK_THAT(said([&](Json& m) { m["sets"][0]["tensors"][0]["file"] = name; }), unsafe);
    CHECK_THAT(said([&](Json& m) { m["copied"][0]["copy"] = name; }), unsafe);
    CHECK_THAT(said([&](Json& m) { m["files"][0]["name"] = name; }), unsafe);
    CHECK_THAT(said([&](Json& m) { m["source"]["files"][0]["name"] = name; }), unsafe);
  }
}

TEST_CASE("a set of more ranks than it lists tensors for is refused before they are planned") {
  constexpr int64_t ranks = 65'536;
  constexpr int64_t intermediate = ranks * 32;
  const auto widen = [=](Json& m) {
    Json& set = m["sets"][0];
    for (Json& t : set["tensors"])
      for (Json& s : t["source"]) {
        if (s["shape"][1] == 192)
          s["shape"][1] = 2 * intermediate;
        else if (s["shape"].size() > 2)
          s["shape"][2] = intermediate / 32;
      }
    std::vector<int> all(size_t(ranks), 0);
    std::iota(all.begin(), all.end(), 0);
    set["moe_tp_size"] = ranks;
    set["ranks"] = all;
    Json config = parse_json(m["source"]["config"].get<std::string>(), "config.json");
    config["intermediate_size"] = intermediate;
    m["source"]["config"] = config.dump();
  };
  const Json good = good_manifest();
  const auto start = std::chrono::steady_clock::now();
  CHECK_THAT(refusal_of(good, widen), Contains("12 packed tensors are listed, 393216 expected"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("an index that is no string is refused, also in a manifest that is laid out as it is written") {
  const TempDir dir;
  make_gpt_oss().write(dir / "ckpt");
  convert(marlin(dir));
  const std::string good = read_text(dir / "out/mxfp4-pack.json", 1 << 20), begin = "\n\"index\": ";
  const size_t at = good.find(begin) + begin.size(), end = good.find("},\n", at);
  REQUIRE(fuzz::read_manifest_text(good).empty());
  for (const char* index : {"", "5", "\"", "\"a\\\"", "{}", "\"a,b\"c\"", "\"\\q\""})
    CHECK(!fuzz::read_manifest_text(std::string(good).replace(at, end - at, index)).empty());
}
