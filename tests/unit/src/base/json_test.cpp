#include "src/base/json.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "src/base/error.h"
#include "tests/support/said.h"

using namespace mxfp4;

namespace {

std::string said_of(const std::string& text) {
  return said_by([&] { parse_json(text, "f"); });
}

}  // namespace

TEST_CASE("numbers of Python that are no JSON are read and written") {
  const std::string text = R"({"a":NaN,"b":[Infinity,-Infinity,1.5],"c":"NaN \" Infinity","Infinity":-1})";
  const Json json = parse_json(text, "f");
  CHECK(std::isnan(json["a"].get<double>()));
  CHECK(json["b"][0].get<double>() == INFINITY);
  CHECK(json["b"][1].get<double>() == -INFINITY);
  CHECK(json["c"] == "NaN \" Infinity");
  CHECK(python_text(json) == text);
  CHECK(python_text(parse_json("{\n  \"a\": -Infinity\n}", "f"), 2) == "{\n  \"a\": -Infinity\n}");
  CHECK(python_text(Json{{"a", 1}, {"b", "x"}}) == R"({"a":1,"b":"x"})");
  for (const char* wrong :
       {"{\"a\": Nan}", "{\"a\": NaNs}", "{\"a\": +Infinity}", "{NaN: 1}", "{\"a\": inf}", "[NaN 1]"})
    CHECK(said_of(wrong).find("f: invalid JSON: ") == 0);
}

TEST_CASE("what is no JSON is named by line, column and key") {
  const auto ends = [](const std::string& text, const std::string& end) {
    const std::string said = said_of(text);
    INFO(said);
    return said.ends_with(end);
  };
  CHECK(ends("{\n  \"a\": 1,\n  \"b\": x\n}", " (line 3, column 8, key 'b')"));
  CHECK(ends(R"({"a": {"b": [1, {"c": tru}]}})", "key 'a.b[1].c')"));
  CHECK(ends("{\"a\": NaN, \"b\": -Infinity, \"c\": x}", " (line 1, column 33, key 'c')"));
  CHECK(ends("{\"\xC3\xA4\": x}", " (line 1, column 7, key '\xC3\xA4')"));
  CHECK(said_of("{\"a\": 1,\n\"a\": 2}") == "f: invalid JSON: duplicate key 'a' (line 2, column 3, key 'a')");
  CHECK(ends("{\"a\": 1", " (line 1, column 7, key 'a')"));
  CHECK(said_of("") == "f: invalid JSON: empty");
}
