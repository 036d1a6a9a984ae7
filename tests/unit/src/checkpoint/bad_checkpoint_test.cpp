// Checkpoints with damaged files: convert reports every error and writes nothing.
#include <sys/stat.h>

#include "src/checkpoint/checkpoint.h"
#include "tests/support/try_checkpoint.h"

using namespace mxfp4;
namespace fs = std::filesystem;

namespace {

const std::string shard = "model-1.safetensors";
const std::string codes = "model.layers.0.mlp.experts.down_proj_blocks";

/// A checkpoint with these contents of its small shard.
MadeCheckpoint with_file(std::string contents) {
  MadeCheckpoint c = make_gpt_oss();
  c.files["model-2.safetensors"] = std::move(contents);
  return c;
}

/// The errors for a shard with this header and data.
Lines said_to_header(const std::string& header, size_t data_bytes) {
  return said_to(with_file(make_raw(header, data_bytes)));
}

std::string entry(const std::string& name, const std::string& rest) { return "{\"" + name + "\":{" + rest + "}}"; }

}  // namespace

TEST_CASE("a shard that is shorter or longer than its header says") {
  MadeCheckpoint c = make_gpt_oss();
  const std::string whole = make_safetensors(c.tensors(), c.metadata);
  const std::string bytes = std::to_string(whole.size());
  c.files[shard] = whole.substr(0, whole.size() - 100);
  CHECK(said_to(c) == Lines{shard + ": " + bytes + " bytes expected, " + std::to_string(whole.size() - 100) +
                            " present; incomplete copy?"});
  c.files[shard] = whole + std::string(5, 'x');
  CHECK(said_to(c) == Lines{shard + ": " + bytes + " bytes expected, " + std::to_string(whole.size() + 5) +
                            " present: 5 surplus at the end"});
}

TEST_CASE("a shard that is cut off in its header, or none at all") {
  CHECK(said_to(with_file("")) == Lines{"model-2.safetensors: 0 bytes, at least 8 expected; incomplete copy?"});
  CHECK(said_to(with_file("1234567")) == Lines{"model-2.safetensors: 7 bytes, at least 8 expected; incomplete copy?"});
  CHECK(said_to(with_file(make_raw(std::string(1000, ' '), 0).substr(0, 500))) ==
        Lines{"model-2.safetensors: header of 1000 bytes expected, 492 present; incomplete copy?"});
  CHECK(
      said_to(with_file(std::string(500, '\xFF'))) ==
      Lines{"model-2.safetensors: header of 18446744073709551615 bytes, at most 100000000 expected; not a safetensors "
            "file?"});
  CHECK(said_to(with_file(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}")) ==
        Lines{"model-2.safetensors: header of 100000001 bytes, at most 100000000 expected; not a safetensors file?"});
}

const std::string gguf =
    "this is a GGUF file, without config.json and usually with attention rounded to Q8_0; use the safetensors "
    "repository "
    "of the same model";

TEST_CASE("another format under the name of a shard") {
  const auto said = [](const std::string& magic) { return said_to(with_file(magic + std::string(100, 'x')))[0]; };
  CHECK(said("version https://git-lfs.github.com/spec/v1\n") ==
        "model-2.safetensors: this is a Git LFS pointer, not the file itself; run 'git lfs pull'");
  CHECK(said("GGUF") == "model-2.safetensors: " + gguf);
  CHECK(said("GPT-OSS v1.0") ==
        "model-2.safetensors: this is a GPT-OSS metal file; use the safetensors checkpoint in the repository's root");
  for (const char* magic : {"PK\x03\x04", "\x80\x02", "\x80\x04"})
    CHECK(said(magic) == "model-2.safetensors: this is a PyTorch pickle; use the safetensors checkpoint");
}

TEST_CASE("a header whose length looks like another format's magic is a header") {
  for (const size_t length : {0x0280, 0x0480}) {
    const MadeCheckpoint c = make_gpt_oss();
    std::string header = entry("model.norm.weight", R"("dtype":"BF16","shape":[64],"data_offsets":[0,128])");
    header.resize(length, ' ');
    CHECK(warned_of(with_file(make_raw(header, 128))).empty());
  }
}

TEST_CASE("another format given as the checkpoint") {
  const TempDir dir;
  ConvertOptions o = marlin(dir);
  write_text(dir / "ckpt", "GGUF and more");
  CHECK(said_to(dir, o) == Lines{"CKPT: " + gguf});
  write_text(dir / "ckpt", "text");
  CHECK(said_to(dir, o) == Lines{"CKPT: a file; a checkpoint directory was expected"});
  fs::remove(dir / "ckpt");
  fs::create_directory(dir / "ckpt");
  CHECK(said_to(dir, o) ==
        Lines{"CKPT: no model.safetensors.index.json and no *.safetensors; a checkpoint directory was expected"});
  write_text(dir / "ckpt/gpt-oss-20b-MXFP4.gguf", "GGUF and more");
  for (const char* beside : {"README.md", "config.json"}) {
    write_text(dir / fmt::format("ckpt/{}", beside), "{}");
    CHECK(said_to(dir, o) == Lines{"CKPT: gpt-oss-20b-MXFP4.gguf: " + gguf});
  }
  fs::remove(dir / "ckpt/gpt-oss-20b-MXFP4.gguf");
  write_text(dir / "ckpt/model.bin", "GPT-OSS v1.0 and more");
  CHECK(said_to(dir, o) == Lines{"CKPT: model.bin: this is a GPT-OSS metal file; use the safetensors checkpoint in the "
                                 "repository's root"});
  write_text(dir / "ckpt/model.bin", "PK\x03\x04 and more");
  CHECK(said_to(dir, o) == Lines{"CKPT: model.bin: this is a PyTorch pickle; use the safetensors checkpoint"});
  fs::remove_all(dir / "ckpt");
  CHECK(refusal(
            dir, [&] { convert(o); }, ErrorKind::io) == Lines{"CKPT: cannot open: No such file or directory"});
}

TEST_CASE("all missing files are listed, broken links with their target") {
  MadeCheckpoint c = make_gpt_oss();
  c.shards["c.safetensors"]["c"] = c.shards["d.safetensors"]["d"] = make_tensor(Dtype::U8, {1}, 0, 1);
  const TempDir dir;
  c.write(dir / "ckpt");
  fs::remove(dir / "ckpt/c.safetensors");
  fs::remove(dir / "ckpt/d.safetensors");
  fs::create_symlink("../blobs/4711", dir / "ckpt/d.safetensors");
  CHECK(said_to(dir, marlin(dir)) == Lines{"c.safetensors: missing; incomplete copy?",
                                           "d.safetensors: broken link to ../blobs/4711; incomplete copy?"});
}

TEST_CASE("index and shards that disagree") {
  MadeCheckpoint c = make_gpt_oss();
  for (const auto& [file, tensors] : c.shards)
    for (const auto& [name, t] : tensors) c.weight_map[name] = file;
  auto right = c.weight_map;
  c.weight_map["absent"] = shard;
  c.weight_map[codes] = "model-2.safetensors";
  CHECK(said_to(c) == Lines{shard + ": absent: in the index but not in the shard",
                            shard + ": " + codes + ": the index says model-2.safetensors"});
  c.weight_map = right;
  c.shards["model-2.safetensors"][codes] = c.at(codes);
  CHECK(said_to(c) ==
        Lines{"model-2.safetensors: " + codes + ": also in " + shard + "; a tensor must be in one shard only"});
  c.index = "none";
  CHECK(said_to(c) ==
        Lines{"model-2.safetensors: " + codes + ": also in " + shard + "; a tensor must be in one shard only"});
  c.shards["model-2.safetensors"] = c.shards[shard];
  const Lines said = said_to(c);
  REQUIRE(said.size() == 1);
  CHECK(said[0].starts_with("model-2.safetensors: "));
  CHECK(said[0].ends_with(
      fmt::format(" and {} more: also in {}; a tensor must be in one shard only", c.shards[shard].size() - 1, shard)));
}

TEST_CASE("an index that is none") {
  const std::string at = "model.safetensors.index.json: ";
  const auto said_to_index = [](const std::string& text) {
    MadeCheckpoint c = make_gpt_oss();
    c.index = text;
    return said_to(c);
  };
  const std::pair<std::string, std::string> indexes[] = {
      {"{}", "no weight_map"},
      {"[]", "invalid JSON: a list instead of an object (line 1, column 1)"},
      {"3", "invalid JSON: a number instead of an object (line 1, column 1)"},
      {R"({"weight_map": 3})",
       "invalid JSON: weight_map: a number instead of an object (line 1, column 17, key 'weight_map')"},
      {R"({"weight_map": []})",
       "invalid JSON: weight_map: a list instead of an object (line 1, column 16, key 'weight_map')"},
      {R"({"weight_map": {"a": 3}})",
       "invalid JSON: weight_map: a is a number instead of a file name (line 1, column 23, key 'a')"},
      {R"({"weight_map": {"a": {}}})",
       "invalid JSON: weight_map: a is an object instead of a file name (line 1, column 22, key 'a')"},
      {R"({"weight_map": {}, "weight_map": {}})",
       "invalid JSON: duplicate key 'weight_map' (line 1, column 31, key 'weight_map')"},
      {R"({"metadata": {"total_size": 1, "total_size": 2}, "weight_map": {}})",
       "invalid JSON: duplicate key 'total_size' (line 1, column 43, key 'total_size')"},
      {R"({"weight_map": {)",
       "invalid JSON: syntax error while parsing object key - unexpected end of input; expected string literal (line "
       "1, column 16, key 'weight_map')"},
      {"{\"weight_map\": {}}" + std::string(1, '\0') + "hidden", "invalid JSON: NUL (line 1, column 18)"},
      {R"({"a": )" + std::string(9, '['), "invalid JSON: nested deeper than 8 levels (line 1, column 14, key 'a')"},
      {R"({"weight_map": {")" + std::string(4097, 'a') + R"(": "b"}})",
       "invalid JSON: weight_map: a name of 4097 bytes, at most 4096 expected (line 1, column 4120, key '" +
           std::string(200, 'a') + "')"},
      {"version https://git-lfs.github.com/spec/v1\n",
       "this is a Git LFS pointer, not the file itself; run 'git lfs pull'"},
  };
  for (const auto& [text, said] : indexes) {
    INFO(text.substr(0, 100));
    CHECK(said_to_index(text) == Lines{at + said});
  }
  CHECK(said_to_index(R"({"weight_map": {"a": "model-2.safetensors", "a": "model-2.safetensors"}})")[0] ==
        at + "a: duplicate key");
}

TEST_CASE("file names that lead elsewhere") {
  for (const char* name : {"../x.safetensors", "/x.safetensors", "a/../../x.safetensors", "C:x.safetensors", "",
                           "a\\x.safetensors", "./x.safetensors"}) {
    MadeCheckpoint c = make_gpt_oss();
    c.weight_map = {{"a", name}};
    CHECK(said_to(c) == Lines{"model.safetensors.index.json: unsafe file name '" + std::string(name) + "'"});
  }
  MadeCheckpoint c = make_gpt_oss();
  c.weight_map = {{"a", "\x1b[2Jx"}};
  CHECK(said_to(c) == Lines{"model.safetensors.index.json: unsafe file name '\\x1b[2Jx'"});
}

TEST_CASE("headers that are no JSON, or other JSON") {
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  const std::pair<std::string, const char*> headers[] = {
      {"", "empty"},
      {"[]", "array instead of an object"},
      {"3", "number instead of an object"},
      {"{} x", "syntax error while parsing value - invalid literal at byte 4"},
      {std::string("{}\0x", 4), "NUL at byte 2"},
      {"\xEF\xBB\xBF{}", "starts with a byte order mark"},
      {"{\"\xFF\":{}}", "syntax error while parsing object key - invalid string: ill-formed UTF-8 byte at byte 3"},
      {R"({"a": )" + std::string(100'000, '['), "unexpected array in the entry of 'a'"},
      {entry("a", R"("shape":[[]])"), "unexpected array in the entry of 'a'"},
      {entry("a", R"("shape":{})"), "unexpected object in the entry of 'a'"},
      {entry("a", R"("shape":[-1])"), "unexpected negative number in the entry of 'a'"},
      {entry("a", R"("shape":[1.5])"), "unexpected fractional number in the entry of 'a'"},
      {entry("a", R"("shape":[9223372036854775808])"), "unexpected number above 2^63 in the entry of 'a'"},
      {entry("a", R"("shape":[1e400])"), "number overflow parsing '1e400' at byte 20"},
      {entry("a", R"("dtype":null)"), "unexpected null in the entry of 'a'"},
      {entry("a", R"("color":1)"), "unknown field 'color' in the entry of 'a'"},
      {R"({"__metadata__":{"a":1}})", "unexpected number in the entry of '__metadata__'"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", "duplicate key 'a' in __metadata__"},
      {R"({"__metadata__":{},"__metadata__":{}})", "duplicate key '__metadata__'"},
      {entry("a", R"("dtype":"U8","dtype":"U8")"), "duplicate key 'dtype' in the entry of 'a'"},
      {entry(std::string(4097, 'a'), ""), "a name of 4097 bytes, at most 4096 expected"},
      {entry("a", "\"shape\":[" + ones + "]"), "unexpected list of more than 64 numbers in the entry of 'a'"},
  };
  for (const auto& [header, said] : headers) {
    INFO(header.substr(0, 100));
    CHECK(said_to_header(header, 0) == Lines{std::string("model-2.safetensors: invalid header: ") + said});
  }
}

TEST_CASE("entries of a header that are wrong, all at once") {
  const std::string u8 = R"({"dtype":"U8","shape":[4],"data_offsets":)";
  const std::string header = R"({"a":{"dtype":"U8","shape":[4]},)"
                             R"("b":{"dtype":"U7","shape":[4],"data_offsets":[0,4]},)"
                             R"("c":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]},)"
                             R"("d":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]},)"
                             R"("e":{"dtype":"F4","shape":[3],"data_offsets":[0,2]},)"
                             R"("f":{"dtype":"U8","shape":[4],"data_offsets":[4,0]},)"
                             R"("g":{"dtype":"U8","shape":[4],"data_offsets":[0,5]},)"
                             R"("\u001b[1m":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                             R"("z\u0000":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const std::string at = "model-2.safetensors: ";
  CHECK(said_to_header(header, 4) ==
        Lines{at + "a: data_offsets is missing", at + "b: unknown dtype 'U7'",
              at + "c: data_offsets has 3 numbers, 2 expected",
              at + "d: U8 [4294967296, 4294967296] overflows or is no whole number of bytes",
              at + "e: F4 [3] overflows or is no whole number of bytes",
              at + "f: data_offsets end before they begin: [4, 0]", at + "g: data_offsets span 5 bytes, U8 [4] needs 4",
              at + "\\x1b[1m: name has a control character", at + "z\\x00: name has a control character"});
  CHECK(said_to_header("{\"a\":" + u8 + "[0,4]},\"a\":" + u8 + "[4,8]}}", 8) ==
        Lines{at + "a: duplicate key in the header"});
  CHECK(said_to_header("{\"a\":" + u8 + "[0,4]},\"b\":" + u8 + "[8,12]}}", 12) ==
        Lines{at + "b: data begin at 8, 4 expected (a hole)"});
  CHECK(said_to_header("{\"a\":" + u8 + "[0,4]},\"b\":" + u8 + "[2,6]}}", 6) ==
        Lines{at + "b: data begin at 2, 4 expected (an overlap)"});
  CHECK(said_to_header("{\"a\":" + u8 + "[9223372036854775803,9223372036854775807]}}", 4)[0] ==
        at + "a: data begin at 9223372036854775803, 0 expected (a hole)");
}

TEST_CASE("a config that is missing or no config") {
  const auto said = [](const std::string& text) {
    MadeCheckpoint c = make_gpt_oss();
    c.files["config.json"] = text;
    return said_to(c);
  };
  CHECK(said("") == Lines{"config.json: invalid JSON: empty"});
  CHECK(said("[]") == Lines{"config.json: no JSON object"});
  CHECK(said(R"({"a":1,"a":2})") == Lines{"config.json: invalid JSON: duplicate key 'a' (line 1, column 10, key 'a')"});
  CHECK(said(std::string(65, '[')) ==
        Lines{"config.json: invalid JSON: nested deeper than 64 levels (line 1, column 65)"});
  CHECK(said(R"({"a":1e999})") ==
        Lines{"config.json: invalid JSON: number overflow parsing '1e999' (line 1, column 10, key 'a')"});
  const TempDir dir;
  make_gpt_oss().write(dir / "ckpt");
  fs::remove(dir / "ckpt/config.json");
  write_text(dir / "ckpt/model-2.safetensors", "GGUF");
  CHECK(said_to(dir, marlin(dir)) == Lines{"config.json: missing; incomplete copy?", "model-2.safetensors: " + gguf});
}

TEST_CASE("what this program wrote is no checkpoint") {
  const TempDir dir;
  make_gpt_oss().write(dir / "made");
  ConvertOptions o = marlin(dir);
  o.checkpoint = dir / "made", o.out = dir / "ckpt";
  convert(o);
  fs::remove(dir / "ckpt/mxfp4-pack.json");
  CHECK(said_to(dir, marlin(dir)) ==
        Lines{"rest-00001.safetensors: already packed by mxfp4-pack; use the original checkpoint"});
}

TEST_CASE("an output in, around or through the checkpoint") {
  const TempDir dir;
  fs::create_directory(dir / "around");
  make_gpt_oss().write(dir / "around/ckpt");
  fs::create_directory_symlink(dir / "around/ckpt", dir / "ckpt");
  const auto said = [&](const std::string& out) {
    ConvertOptions o = marlin(dir);
    o.out = out, o.force = true;
    const auto before = contents_of(dir / "");
    const Lines lines = refusal(
        dir, [&] { convert(o); }, ErrorKind::usage);
    CHECK((contents_of(dir / "") == before));
    return lines;
  };
  fs::create_directory_symlink(dir / "ckpt", dir / "out");
  CHECK(said(dir / "out") == Lines{"OUT: is a link; use its target instead"});
  CHECK(said(dir / "out/") == Lines{"OUT/: is a link; use its target instead"});
  CHECK(said(dir / "ckpt/") == Lines{"CKPT/: is a link; use its target instead"});
  CHECK(said(dir / "ckpt/.") == Lines{"CKPT/.: is the source CKPT itself; choose another place"});
  CHECK(said(dir / "out/inner") == Lines{"OUT/inner: lies inside the source CKPT; choose another place"});
  CHECK(said(dir / "ckpt/inner") == Lines{"CKPT/inner: lies inside the source CKPT; choose another place"});
  CHECK(said(dir / "around") == Lines{dir / "around: holds the source CKPT; choose another place"});
  fs::remove(dir / "out");
  fs::create_directory(dir / "out");
  write_text(dir / "out/mine", "");
  CHECK(said(dir / "out") ==
        Lines{"OUT: exists, and nothing in it says that this command made it; choose another place"});
}
