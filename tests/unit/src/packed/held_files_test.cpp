// Reads of an output while another run replaces it.
#include "src/packed/held_files.h"

#include <catch2/catch.hpp>

#include "src/packed/packed_checkpoint.h"
#include "tests/support/program.h"

using namespace mxfp4;
namespace fs = std::filesystem;
#include "src/checkpoint/shard_reader.h"

namespace {

void replace(const std::string& out, const std::string& engine) {
  ConvertOptions o = conversion(tiny_gpt_oss, out, engine);
  o.force = true;
  convert(o);
}

/// Every tensor's bytes, by file and name.
std::map<std::string, std::string> bytes_of(const PackedCheckpoint& p) {
  const ShardReader reader(p.files);
  std::map<std::string, std::string> out;
  const auto add = [&](const Tensor& t) {
    std::string& bytes = out[p.files.where(t)];
    bytes.resize(size_t(t.bytes));
    reader.read({&t, 0, t.bytes}, bytes.data());
  };
  for (const PackedSet& set : p.sets)
    for (const Tensor& t : set.stored) add(t);
  for (const Tensor& t : p.copied) add(t);
  reader.check_unchanged();
  return out;
}

std::string said_by(const HeldFiles& held) {
  try {
    held.throw_if_replaced("file");
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::io);
    return e.lines.front();
  }
  return {};
}

}  // namespace

TEST_CASE("an opened output stays what it was while another takes its place") {
  const TempDir dir;
  const std::string out = dir / "out";
  convert(conversion(tiny_gpt_oss, out, "vllm"));
  Problems problems;
  const auto before = open_packed(out, problems);
  const auto bytes = bytes_of(*before);
  const Checkpoint& made_from = before->manifest.source;
  std::vector<std::string> companions;
  for (const std::string& name : made_from.companions) companions.push_back(companion_text(made_from, name));
  REQUIRE_FALSE(companions.empty());

  replace(out, "sglang");
  CHECK((bytes_of(*before) == bytes));
  for (size_t i = 0; i < companions.size(); ++i)
    CHECK(companion_text(made_from, made_from.companions[i]) == companions[i]);
  const auto after = open_packed(out, problems);
  CHECK(after->manifest.sets.front().engine == "sglang");
  CHECK((bytes_of(*after) != bytes));
  CHECK(problems.errors().empty());
}

TEST_CASE("a directory that is replaced, removed or made while it is opened is noticed") {
  const TempDir dir;
  const std::string out = dir / "out";
  fs::create_directories(out);
  write_text(out + "/file", "first");
  HeldFiles held(out);
  held.hold("file");
  CHECK(said_by(held) == "");
  const std::string expected = out + ": was replaced while it was read; run it again";

  SECTION("another file of the name") {
    fs::rename(out + "/file", out + "/old");
    write_text(out + "/file", "second");
    CHECK(said_by(held) == expected);
  }
  SECTION("another directory") {
    fs::rename(out, dir / "old");
    CHECK(said_by(held) == expected);
    fs::create_directories(out);
    fs::create_hard_link(dir / "old/file", out + "/file");
    CHECK(said_by(held) == expected);
  }
  SECTION("a directory where there was none") {
    const HeldFiles none(dir / "later");
    CHECK(said_by(none) == "");
    fs::create_directories(dir / "later");
    CHECK(said_by(none) == dir / "later" + ": was replaced while it was read; run it again");
  }
  Problems problems;
  CHECK(read_text(held.path("file", problems), 100) == "first");
}

TEST_CASE("no file of an output is read through a link out of it") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  REQUIRE(is_right(dir / "out"));
  const auto link_out = [&](const std::string& name) {
    fs::remove_all(dir / "elsewhere");
    fs::rename(dir / ("out/" + name), dir / "elsewhere");
    fs::create_symlink(dir / "elsewhere", dir / ("out/" + name));
  };
  const auto put_back = [&](const std::string& name) { fs::rename(dir / "elsewhere", dir / ("out/" + name)); };
  for (const char* name : {"config.json", "model.safetensors.index.json", "packed/canary-0.safetensors",
                           "packed/packed-00001.safetensors"}) {
    INFO(name);
    link_out(name);
    CHECK_FALSE(is_right(dir / "out"));
    put_back(name);
  }
  link_out("mxfp4-pack.json");
  CHECK_THROWS_WITH(is_right(dir / "out"), Catch::Contains("mxfp4-pack.json: links outside the directory"));
}
