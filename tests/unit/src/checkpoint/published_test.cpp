// The published hashes of a checkpoint's files.
#include "src/checkpoint/published.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "src/base/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/io/sha256.h"
#include "src/io/source_folder.h"
#include "tests/support/make_checkpoint.h"

using namespace mxfp4;

namespace {

/// Hashes printed by `sha1sum` and `git hash-object`.
constexpr const char* abc_sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
constexpr const char* hello_blob = "ce013625030ba8dba906f756967f9e9ca394464a";  // "hello\n"

std::string hex(const PublishedFile& file, const std::string& text) {
  Digest digest = digest_like(file, int64_t(text.size()));
  digest.take(text.data(), int64_t(text.size()));
  return digest.hex();
}

PublishedList read(const std::string& text) {
  const TempDir dir;
  write_text(dir / "list", text);
  return read_published_list(dir / "list");
}

}  // namespace

TEST_CASE("hashes are SHA-256, or Git's SHA-1 of a blob") {
  Digest sha1(DigestKind::sha1);
  sha1.take("abc", 3);
  CHECK(sha1.hex() == abc_sha1);
  CHECK(hex({.name = {}, .hash = hello_blob, .by = {}}, "hello\n") == hello_blob);
  const std::string sha256 = sha256_of("hello\n");
  CHECK(sha256 == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  CHECK(hex({.name = {}, .hash = sha256, .by = {}}, "hello\n") == sha256);
}

TEST_CASE("what is a hash") {
  CHECK(is_published_hash(hello_blob));
  CHECK(is_published_hash(std::string(64, 'f')));
  for (const std::string& text : {std::string(), std::string(64, 'F'), std::string(64, 'g'), std::string(63, '0'),
                                  std::string(32, '0'), std::string(41, '0')})
    CHECK_FALSE(is_published_hash(text));
}

TEST_CASE("lists are sorted by name") {
  const std::string a(64, 'a'), b(64, 'B');
  const PublishedList list = read(fmt::format("{}  z\n\n{} *a name/with spaces", a, b));
  REQUIRE(list.size() == 2);
  CHECK(list[0] == PublishedFile{"a name/with spaces", -1, std::string(64, 'b'), "list"});
  CHECK(find(list, "z")->hash == a);
  CHECK(find(list, "y") == nullptr);
}

TEST_CASE("of a file in LFS the tree has the hash of its pointer and of its contents") {
  const PublishedList list = read(fmt::format(
      R"([{{"path": "m", "size": 7, "oid": "{0}", "lfs": {{"oid": "{1}", "size": 7}}}}, {{"path": "c", "size": 3, "oid": "{0}", "lfs": null}}])",
      hello_blob, std::string(64, '1')));
  CHECK(*find(list, "m") == PublishedFile{"m", 7, std::string(64, '1'), "list"});
  CHECK(*find(list, "c") == PublishedFile{"c", 3, hello_blob, "list"});
}

TEST_CASE("names of blobs are hashes, if files are links to them") {
  const TempDir dir;
  make_gpt_oss().write(dir / "ckpt");
  const auto links_to = [&](const std::string& target) {
    std::filesystem::remove(dir / "ckpt/config.json");
    std::filesystem::create_symlink(target, dir / "ckpt/config.json");
    Checkpoint ck;
    ck.folder = std::make_shared<SourceFolder>(dir / "ckpt");
    ck.config_text = "{}";
    const PublishedList list = published_beside(ck);
    return list.empty() ? "" : list.front().hash + " " + list.front().by;
  };
  const std::string hash(64, '7');
  CHECK(links_to("../../blobs/" + hash) == hash + " cache");
  CHECK(links_to(std::string("../../blobs/") + hello_blob) == std::string(hello_blob) + " cache");
  CHECK(links_to("../../blobs/" + hash + ".incomplete").empty());
  CHECK(links_to("../../other/" + hash).empty());
  CHECK(links_to(hash).empty());
}
