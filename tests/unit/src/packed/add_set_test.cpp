// convert --add, and the other commands on an output with several sets.
#include "src/packed/add_set.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "src/inspect/diff.h"
#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/said.h"

using namespace mxfp4;

namespace {

ConvertOptions adding(const std::string& from, const std::string& to, const std::string& engine,
                      const std::string& backend = "marlin", int tp = 1) {
  ConvertOptions o = conversion(from, to, engine, backend);
  o.add = true, o.tp_size = tp;
  return o;
}

/// Makes an output with three sets: Marlin of vLLM and of SGLang, and Triton (Hopper) of vLLM at tp 2.
void make_three(const std::string& out) {
  convert(conversion(tiny_gpt_oss, out, "vllm"));
  convert(adding(tiny_gpt_oss, out, "sglang"));
  convert(adding(tiny_gpt_oss, out, "vllm", "triton-hopper", 2));
}

Json manifest_of(const std::string& out) {
  return parse_json(read_text(out + "/mxfp4-pack.json", 1 << 22), "manifest");
}

ino_t inode(const std::string& path) {
  struct stat s;
  REQUIRE(::lstat(path.c_str(), &s) == 0);
  return s.st_ino;
}

/// Name and inode of every file. An inode changes if its file is rewritten.
std::map<std::string, ino_t> inodes_of(const std::string& dir) {
  std::map<std::string, ino_t> out;
  for (const std::string& name : files_below(Folder::open(dir))) out[name] = inode(dir + "/" + name);
  return out;
}

bool are_equal(const std::string& a, const std::string& b) {
  DiffOptions o;
  o.a = a, o.b = b;
  set_verbosity(Verbosity::quiet);
  return diff(o);
}

std::string refusal(const ConvertOptions& o) {
  const auto before = inodes_of(o.out);
  const std::string said = said_by([&] { convert(o); });
  CHECK(inodes_of(o.out) == before);
  return said;
}

void copy_dir(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

}  // namespace

TEST_CASE("a set comes beside the others, which stay the files that they were") {
  const TempDir dir;
  const std::string out = dir / "out";
  convert(conversion(tiny_gpt_oss, out, "vllm"));
  const auto before = inodes_of(out);
  const Json first = manifest_of(out)["sets"][0];
  convert(adding(tiny_gpt_oss, out, "sglang"));
  convert(adding(tiny_gpt_oss, out, "vllm", "triton-hopper", 2));
  for (const auto& [name, file] : before)
    if (name != "config.json" && name != "mxfp4-pack.json") CHECK(inode(out + "/" + name) == file);
  const Json m = manifest_of(out);
  REQUIRE(m["sets"].size() == 3);
  CHECK(m["sets"][0] == first);
  CHECK(m["sets"][2]["canary"] == "packed/canary-2.safetensors");
  const Json mark = parse_json(read_text(out + "/config.json", 1 << 20), "config")["quantization_config"]["mxfp4_pack"];
  CHECK(mark["sets"] == Json::parse(R"([
    {"engine": "vllm", "backend": "marlin", "layout_version": "1", "moe_tp_size": 1},
    {"engine": "sglang", "backend": "marlin", "layout_version": "1", "moe_tp_size": 1},
    {"engine": "vllm", "backend": "triton-hopper", "layout_version": "a", "moe_tp_size": 2}])"));
  CHECK(mark["checksum"].get<std::string>().size() == 32);
  CHECK(is_right(out, {}, Level::files));
  CHECK(is_right(out));
  CHECK(is_right(out, tiny_gpt_oss));
  // the same bytes as in an output with this set only
  ConvertOptions alone = conversion(tiny_gpt_oss, dir / "alone", "vllm", "triton-hopper");
  alone.tp_size = 2;
  convert(alone);
  for (const char* rank : {"tp2-rank0-00001.safetensors", "tp2-rank1-00001.safetensors"})
    CHECK(read_text(dir / "alone/packed/" + rank, 1 << 24) == read_text(out + "/packed/set2-" + rank, 1 << 24));
  CHECK(read_text(dir / "alone/packed/canary-0.safetensors", 1 << 20) ==
        read_text(out + "/packed/canary-2.safetensors", 1 << 20));
  make_three(dir / "again");
  CHECK(contents_of(dir / "again") == contents_of(out));
  CHECK(contents_of(dir / "").count(".out.mxfp4-pack/journal") == 0);
}

TEST_CASE("an output of several sets is unpacked and converted like its source") {
  const TempDir dir;
  make_three(dir / "out");
  run_unpack(dir / "out", dir / "again");
  CHECK(contents_of(dir / "again") == contents_of(tiny_gpt_oss));
  convert(conversion(tiny_gpt_oss, dir / "direct", "vllm", "vllm-cpu"));
  convert(conversion(dir / "out", dir / "packed", "vllm", "vllm-cpu"));
  CHECK(contents_of(dir / "packed") == contents_of(dir / "direct"));
}

TEST_CASE("what is not whole or is lossy is left out where a set is unpacked") {
  const TempDir dir;
  const Golden golden("layer_deepseek.safetensors");
  const LayerCheckpoint layer(golden, dir / "in");
  convert(conversion(dir / "in", dir / "out", "vllm", "flashinfer-humming"));
  CHECK_THROWS_WITH(run_unpack(dir / "out", dir / "no"), Catch::Contains("lossy"));
  convert(adding(dir / "in", dir / "out", "sglang"));
  CHECK(comes_back(dir));
  CHECK(is_right(dir / "out", dir / "in"));
}

TEST_CASE("the source may be the output itself, or what was unpacked of it") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "a", "vllm"));
  for (const char* copy : {"b", "c", "d"}) copy_dir(dir / "a", dir / copy);
  run_unpack(dir / "a", dir / "unpacked");
  convert(adding(tiny_gpt_oss, dir / "a", "sglang", "triton-hopper", 2));
  convert(adding(dir / "b", dir / "b", "sglang", "triton-hopper", 2));
  convert(adding(dir / "unpacked", dir / "c", "sglang", "triton-hopper", 2));
  convert(adding(dir / "a", dir / "d", "sglang", "triton-hopper", 2));
  for (const char* copy : {"b", "c", "d"}) CHECK(contents_of(dir / copy) == contents_of(dir / "a"));
}

TEST_CASE("a set that is there is left as it is, and one that loaders could not tell from it is refused") {
  const TempDir dir;
  const std::string out = dir / "out";
  convert(conversion(tiny_gpt_oss, out, "vllm", "flashinfer-cutlass"));
  convert(adding(tiny_gpt_oss, out, "vllm", "marlin", 2));
  CHECK(convert(adding(tiny_gpt_oss, out, "vllm", "flashinfer-cutlass"))["unchanged"] == true);
  ConvertOptions other = adding(tiny_gpt_oss, out, "vllm", "flashinfer-cutlass");
  other.layout_version = "v1";
  CHECK(refusal(other).find("exists already in layout version v2; loaders cannot distinguish them") !=
        std::string::npos);
  CHECK(convert(adding(tiny_gpt_oss, out, "vllm", "marlin", 2))["unchanged"] == true);
  other = adding(tiny_gpt_oss, out, "vllm", "flashinfer-cutlass");
  other.dry_run = true;
  CHECK(refusal(other).find("exists already") != std::string::npos);
  CHECK_THROWS_WITH(convert(adding(tiny_gpt_oss, dir / "none", "vllm")), Catch::Contains("no such directory"));
}

TEST_CASE("another source is refused by name, and the output stays as it was") {
  const TempDir dir;
  const std::string out = dir / "out";
  convert(conversion(tiny_gpt_oss, out, "vllm"));
  CHECK(refusal(adding(tiny + "deepseek-v4", out, "sglang"))
            .find("not the source that " + out + " was made from: it has no") != std::string::npos);
  copy_dir(tiny_gpt_oss, dir / "tuned");
  Json config = parse_json(read_text(tiny_gpt_oss + "/config.json", 1 << 20), "config");
  config["swiglu_limit"] = 8.0;
  write_text(dir / "tuned/config.json", config.dump());
  CHECK(refusal(adding(dir / "tuned", out, "sglang")).ends_with("config.json differs"));
  std::filesystem::copy_file(tiny_gpt_oss + "/config.json", dir / "tuned/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  Problems problems;
  for (const char* tensor : {"model.layers.0.mlp.experts.down_proj_blocks", "model.norm.weight"}) {
    const Checkpoint ck = open_checkpoint(dir / "tuned", problems);
    const Tensor& t = *ck.find(tensor);
    flip(ck.shards[size_t(t.file)].path, t.offset + 3);
    CHECK(refusal(adding(dir / "tuned", out, "sglang")).find(std::string("1 of ")) != std::string::npos);
    CHECK(refusal(adding(dir / "tuned", out, "sglang")).find(std::string(tensor) + " first") != std::string::npos);
    flip(ck.shards[size_t(t.file)].path, t.offset + 3);
  }
  convert(adding(dir / "tuned", out, "sglang"));
}

TEST_CASE("each of several sets is known, and a missing one is added") {
  const TempDir dir;
  const std::string out = dir / "out";
  make_three(out);
  const auto before = inodes_of(out);
  ConvertOptions o = adding(tiny_gpt_oss, out, "vllm", "triton-hopper", 2);
  CHECK(convert(o)["unchanged"] == true);
  o.add = false;
  CHECK(convert(o)["unchanged"] == true);
  o = conversion(tiny_gpt_oss, out, "vllm");
  CHECK(convert(o)["unchanged"] == true);
  CHECK(inodes_of(out) == before);
  o = adding(tiny_gpt_oss, out, "vllm", "deepgemm");
  o.layout_version = "1";  // no release loads this version
  CHECK(convert(o)["set"] == 3);
  CHECK(convert(o)["unchanged"] == true);
  CHECK(is_right(out, tiny_gpt_oss));
}

TEST_CASE("verify finds what is wrong in any set") {
  const TempDir dir;
  make_three(dir / "out");
  for (const char* name : {"packed/packed-00001.safetensors", "packed/set1-packed-00001.safetensors",
                           "packed/set2-tp2-rank1-00001.safetensors", "packed/canary-2.safetensors"}) {
    INFO(name);
    const std::string path = dir / "out/" + name;
    const auto last = int64_t(std::filesystem::file_size(path)) - 1;
    flip(path, last);
    CHECK(!is_right(dir / "out", {}, Level::files));
    flip(path, last);
  }
  CHECK(is_right(dir / "out", {}, Level::files));
}

TEST_CASE("diff compares all sets and ranks that both have, and names the others") {
  const TempDir dir;
  make_three(dir / "a");
  copy_dir(dir / "a", dir / "b");
  CHECK(are_equal(dir / "a", dir / "b"));
  const std::string path = dir / "b/packed/set2-tp2-rank1-00001.safetensors";
  flip(path, int64_t(std::filesystem::file_size(path)) - 1);
  CHECK(!are_equal(dir / "a", dir / "b"));
  DiffOptions o;
  o.a = dir / "a", o.b = dir / "b", o.rank = 0;
  CHECK(diff(o));
  o.rank = 2;
  CHECK_THROWS_WITH(diff(o), Catch::Contains("no rank 2"));
  convert(conversion(tiny_gpt_oss, dir / "c", "sglang"));
  CHECK(!are_equal(dir / "a", dir / "c"));  // each has sets that the other lacks
}
