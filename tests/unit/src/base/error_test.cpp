// Lists of problems, and messages of errors.
#include "src/base/error.h"

#include <catch2/catch.hpp>
#include <cerrno>

#include "src/base/json.h"
#include "tests/support/said.h"

using namespace mxfp4;

TEST_CASE("of each kind of problem a hundred lines are kept and the others counted") {
  Problems problems;
  for (int i = 0; i < 250; ++i) {
    problems.error("file", "missing {}", i);
    if (i < 100) problems.error("file", "wrong {}", i);
  }
  problems.error("file", "last");
  const std::vector<std::string> lines = problems.errors();
  CHECK(problems.count() == 351);
  REQUIRE(lines.size() == 202);
  CHECK(lines[0] == "file: missing 0");
  CHECK(lines[198] == "file: missing 99");
  CHECK(lines[199] == "... and 150 more of the same kind");
  CHECK(lines[200] == "file: wrong 99");
  CHECK(lines[201] == "file: last");
}

TEST_CASE("what repeats over layers and experts is one line with a count, the first and the last name") {
  Problems problems;
  for (const int layer : {0, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2, 20, 21, 22, 23, 3, 4, 5, 6, 7, 8, 9})
    for (int expert = 0; expert < 128; ++expert)
      problems.error(
          where(fmt::format("model-{:05}.safetensors", layer), fmt::format("layers.{}.e.{}.w1", layer, expert)),
          "U8 [8, 4] for layers.{}.e.{}.w1, [4, 8] expected", layer, expert);
  problems.error(where("model-00001.safetensors", "layers.0.e.0.w1"), "F32, U8 expected");
  for (int layer = 2; layer < 4; ++layer)
    problems.error(fmt::format("layers.{}.e", layer), "experts 1-{} missing", 2 + layer / 3);
  for (int file = 1; file < 3; ++file) problems.error(fmt::format("model-0000{}.safetensors", file), "missing");
  CHECK(problems.count() == 24 * 128 + 5);
  CHECK(problems.errors() ==
        std::vector<std::string>{"model-00000.safetensors: layers.0.e.0.w1: U8 [8, 4] for layers.0.e.0.w1, [4, 8] "
                                 "expected (3072 such, the last is "
                                 "layers.23.e.127.w1)",
                                 "model-00001.safetensors: layers.0.e.0.w1: F32, U8 expected",
                                 "layers.2.e: experts 1-2 missing", "layers.3.e: experts 1-3 missing",
                                 "model-00001.safetensors: missing", "model-00002.safetensors: missing"});
}

TEST_CASE("what another run took away is said to be that") {
  const auto said = [](const std::string& file, int error) {
    return said_by([&] { fail_errno(file, "cannot open", error); });
  };
  const std::string hidden = "/models/.out.mxfp4-pack/new/packed";
  CHECK(said(hidden, ENOENT).ends_with("No such file or directory; another run of mxfp4-pack has moved or removed it"));
  CHECK(said(hidden, EIO).ends_with("Input/output error"));
  CHECK(said("/models/out/packed", ENOENT).ends_with("No such file or directory"));
}

TEST_CASE("what terminals obey, what turns the direction and what nobody sees is escaped") {
  // U+009B, U+061C, U+200B to U+200F, U+2028, U+2029, U+202E, U+2060, U+2069, U+FEFF, DEL
  const std::vector<std::pair<std::string, std::string>> characters = {
      {"\xC2\x9B", "009b"},     {"\xD8\x9C", "061c"},     {"\xE2\x80\x8B", "200b"}, {"\xE2\x80\x8C", "200c"},
      {"\xE2\x80\x8D", "200d"}, {"\xE2\x80\x8E", "200e"}, {"\xE2\x80\x8F", "200f"}, {"\xE2\x80\xA8", "2028"},
      {"\xE2\x80\xA9", "2029"}, {"\xE2\x80\xAE", "202e"}, {"\xE2\x81\xA0", "2060"}, {"\xE2\x81\xA9", "2069"},
      {"\xEF\xBB\xBF", "feff"}, {"\x7F", "007f"}};
  for (const auto& [text, code] : characters) {
    CHECK_FALSE(is_printable("a" + text + "b"));
    CHECK(printable("a" + text + "b").find(text) == std::string::npos);
    const std::string json = one_line(Json{{"a" + text, text + "b"}});
    CHECK(json == "{\"a\\u" + code + "\":\"\\u" + code + "b\"}");
    CHECK(parse_json(json, "json") == Json{{"a" + text, text + "b"}});
  }
  CHECK(printable("\xE2\x80\x8B") == "\\xe2\\x80\\x8b");
  CHECK(printable("\xC3\xA4\xE4\xB8\xAD") == "\xC3\xA4\xE4\xB8\xAD");
  CHECK(one_line(Json("\xC3\xA4\xFF")) == "\"\xC3\xA4\xEF\xBF\xBD\"");
}
