// Every truncation and every changed byte of an input file must give a clear error or success.
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/fuzz/targets.h"
#include "tests/support/testdata.h"
#include "tests/support/try_checkpoint.h"

using namespace mxfp4;

namespace {

using Read = Lines (*)(std::string_view);

/// Reads the text truncated at every byte, and with every byte changed: each single bit, to 0 and to a quote.
void mutate(const std::string& text, Read read) {
  REQUIRE(read(text).empty());
  for (size_t length = 0; length < text.size(); ++length)
    if (read(text.substr(0, length)).empty())
      CHECK(text.find_first_not_of(" \t\r\n", length) == text.npos);  // only white space was cut off
  for (size_t at = 0; at < text.size(); ++at)
    for (const int change : {1, 2, 4, 8, 16, 32, 64, 128, int(uint8_t(text[at])), text[at] ^ '"'}) {
      std::string changed = text;
      changed[at] = char(changed[at] ^ change);
      const auto start = std::chrono::steady_clock::now();
      read(changed);
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(5)) FAIL("slow at byte " << at);
    }
}

std::string header_of(const MadeCheckpoint& c) {
  const std::string& name = c.shards.begin()->first;
  const std::string file = make_safetensors(c.shards.at(name), c.metadata);
  Problems problems;
  uint64_t length;
  std::memcpy(&length, file.data(), 8);
  return file.substr(8, length);
}

}  // namespace

TEST_CASE("a header, changed anywhere") {
  mutate(header_of(make_gpt_oss()), fuzz::read_header_text);
  MadeCheckpoint one;
  add_deepseek_layer(one, "layers.0.", 1);
  mutate(header_of(one), fuzz::read_header_text);
}

TEST_CASE("an index, changed anywhere") {
  mutate(R"({"metadata": {"total_size": 12}, "weight_map": {"a.b": "m-1.safetensors", "c": "d/m-2.safetensors"}})",
         fuzz::read_index_text);
}

TEST_CASE("a config, changed anywhere") {
  mutate(make_gpt_oss().config.dump(1), [](std::string_view text) {
    return fuzz::said_by([&](Problems& problems) {
      Checkpoint ck = fuzz::in_memory(make_gpt_oss());
      ck.config = parse_json(text, "config.json");
      fuzz::plan_for(ck, {}, "vllm", problems);
    });
  });
}

TEST_CASE("a manifest, changed anywhere", "[long]") {
  const TempDir dir;
  make_gpt_oss().write(dir / "ckpt");
  convert(marlin(dir));
  mutate(read_text(dir / "out/mxfp4-pack.json", 1 << 20), fuzz::read_manifest_text);
}

TEST_CASE("a line of a table, changed anywhere") {
  const TempDir dir;
  make_gpt_oss().write(dir / "ckpt");
  convert(marlin(dir));
  for (const char* name : {"tensors-0.jsonl", "source-tensors.jsonl"}) {
    const std::string table = read_text(dir / "out/packed/" + name, 1 << 20);
    mutate(table.substr(0, table.find('\n')), fuzz::read_table_text);
  }
}

TEST_CASE("a layout file, changed anywhere") {
  mutate(read_text(testdata() + "/fuzz/layout/plain", 1 << 20), fuzz::read_layout_text);
}

TEST_CASE("every input of the fuzz corpus") {
  const std::pair<const char*, Read> targets[] = {
      {"header", fuzz::read_header_text},     {"index", fuzz::read_index_text}, {"config", fuzz::read_config_text},
      {"manifest", fuzz::read_manifest_text}, {"table", fuzz::read_table_text}, {"layout", fuzz::read_layout_text}};
  for (const auto& [name, read] : targets) {
    const auto files = contents_of(testdata() + "/fuzz/" + name);
    CHECK(files.size() > 1);
    for (const auto& [file, text] : files) {
      INFO(name << "/" << file);
      read(text);
    }
  }
}

TEST_CASE("a shard, cut off anywhere") {
  const TempDir dir;
  const std::string file = make_safetensors(make_gpt_oss().shards["model-2.safetensors"], {{"format", "pt"}});
  for (size_t length = 0; length <= file.size(); ++length) {
    write_text(dir / "file", file.substr(0, length));
    Problems problems;
    const Header header = read_header(dir / "file", "file", problems);
    CHECK(problems.any() == (length < file.size()));
    CHECK(header.tensors.empty() == problems.any());
  }
}
