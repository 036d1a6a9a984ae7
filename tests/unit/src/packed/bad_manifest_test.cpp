// Manifests that are refused although they have their own checksum.
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/fuzz/targets.h"
#include "tests/support/program.h"
#include "tests/support/seal.h"
#include "tests/support/try_checkpoint.h"

using namespace mxfp4;
using Catch::Contains;

namespace {

/// GPT-OSS on two ranks, as JSON.
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

/// The tables of GPT-OSS on two ranks.
Json good_lines(const std::string& name) {
  const TempDir dir;
  make_gpt_oss().write(dir / "ckpt");
  ConvertOptions o = marlin(dir);
  o.tp_size = 2;
  convert(o);
  return read_lines(dir / "out/packed/" + name);
}

template <class Change>
std::string refusal_of_lines(Json lines, Change change) {
  change(lines);
  std::string text;
  for (const Json& line : lines) text += line.dump() + "\n";
  return fmt::format("{}", fmt::join(fuzz::read_table_text(text), "\n"));
}

}  // namespace

TEST_CASE("what a table lists twice or cannot list is refused") {
  for (const char* name : {"tensors-0.jsonl", "source-tensors.jsonl"}) {
    const Json good = good_lines(name);
    const auto said = [&](auto change) { return refusal_of_lines(good, change); };
    CHECK(said([](Json&) {}) == "");
    CHECK_THAT(said([](Json& t) { t.push_back(t[0]); }), Contains("is listed twice"));
    CHECK_THAT(said([](Json& t) { t[1] = 5; }), Contains("no object; damaged?"));
    CHECK_THAT(said([](Json& t) { t[1].erase("xxh3_128"); }), Contains("no 'xxh3_128'"));
    for (const char* unsafe : {"../evil", "/etc/passwd", "packed//a", ""})
      for (const char* key : {"file", "copy"})
        for (size_t i = 0; i < good.size(); ++i) {
          const bool is_read = good[i].contains(key) && good[i].contains("rank") == (key == std::string("file"));
          if (is_read) CHECK_THAT(said([&](Json& t) { t[i][key] = unsafe; }), Contains("unsafe file name"));
        }
  }
  CHECK_THAT(refusal_of_lines(good_lines("source-tensors.jsonl"), [](Json& t) { t[0]["name"] = "other"; }),
             Contains("other is in no shard"));
}

TEST_CASE("files of a manifest that would lie in one place are refused") {
  const Json good = good_manifest();
  const auto said = [&](auto change) { return refusal_of(good, change); };
  for (const char* name : {"config.json", "model.safetensors.index.json"})
    CHECK_THAT(said([&](Json& m) { m["source"]["files"][0]["name"] = name; }),
               Contains("is not a name of a file with tensors"));
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
        "mxfp4-pack.json: needs[0]: 'parts' is unknown; use a newer mxfp4-pack");
  CHECK_THAT(said([](Json& m) { m["sets"][0]["needs"] = {"x"}; }), Contains("sets[0].needs[0]: 'x' is unknown"));
  CHECK_THAT(said([](Json& m) { m["format_version"] = 4; }), Contains("this program knows 3"));
  CHECK_THAT(said([](Json& m) { m["format_version"] = 2; }), Contains("made by a pre-release (format 2); convert"));
}

TEST_CASE("a manifest's paths stay below its directory") {
  const Json good = good_manifest();
  const auto said = [&](auto change) { return refusal_of(good, change); };
  for (const char* name : {"../evil", "/etc/passwd", "packed//a", ""}) {
    const auto unsafe = Contains("unsafe file name");
    CHECK_THAT(said([&](Json& m) { m["sets"][0]["canary"] = name; }), unsafe);
    CHECK_THAT(said([&](Json& m) { m["sets"][0]["table"] = name; }), unsafe);
    CHECK_THAT(said([&](Json& m) { m["files"][0]["name"] = name; }), unsafe);
    CHECK_THAT(said([&](Json& m) { m["source"]["files"][0]["name"] = name; }), unsafe);
  }
}

TEST_CASE("a set of more ranks than it lists tensors for is refused before they are planned") {
  constexpr int64_t ranks = 65'536;
  constexpr int64_t intermediate = ranks * 32;
  Checkpoint wide = fuzz::in_memory(make_gpt_oss());
  for (Tensor& t : wide.tensors) {
    if (t.name.find(".experts.") == std::string::npos) continue;
    if (t.shape[1] == 192)
      t.shape[1] = 2 * intermediate;
    else if (t.shape.size() > 2)
      t.shape[2] = intermediate / 32;
    t.bytes = tensor_bytes(t.dtype, t.shape);
  }
  wide.config["intermediate_size"] = intermediate;
  Manifest m;
  m.source = wide;
  Problems problems;
  const Model model = recognise(m.source, {}, problems);
  ManifestSet set;
  set.engine = "vllm", set.backend = "marlin", set.layout_version = "1";
  set.tp_size = int(ranks);
  for (int i = 0; i < 12; ++i) set.files[{i, "a"}] = "b";
  REQUIRE(!problems.any());
  const auto start = std::chrono::steady_clock::now();
  plan_of(m, set, model, problems);
  CHECK_THAT(problems.errors().at(0), Contains("12 packed tensors are listed for 65536 ranks"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}
