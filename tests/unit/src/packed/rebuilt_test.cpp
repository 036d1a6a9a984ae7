// verify trusts no statement of OUT about itself. The test changes each field of OUT's JSON files and updates the
// manifest's checksum. verify must find the change and name its place.
#include "src/packed/rebuilt.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "src/packed/manifest.h"
#include "tests/support/program.h"
#include "tests/support/seal.h"

using namespace mxfp4;

namespace fs = std::filesystem;

namespace {

/// The output and messages of verify; if verify throws, the lines of the exception.
struct Answer {
  bool right = false;
  std::string text;
};

Answer verify_all(const std::string& out, const std::string& source) {
  const TempDir dir;
  std::fflush(stdout);
  const int kept = ::dup(1);
  REQUIRE(std::freopen((dir / "text").c_str(), "w", stdout));
  Answer answer;
  try {
    answer.right = is_right(out, source);
  } catch (const Error& e) {
    answer.text = fmt::format("{}", fmt::join(e.lines, "\n"));
  }
  std::fflush(stdout);
  ::dup2(kept, 1);
  ::close(kept);
  answer.text += read_text(dir / "text", 1 << 24);
  return answer;
}

void seal(const std::string& out, const Json& manifest) {
  write_text(out + "/" + manifest_name, sealed(manifest.dump(1)));
}

/// The paths of all values. Of lists, only the first, a middle and the last entry are used.
void add_paths(const Json& value, const Json::json_pointer& at, std::vector<Json::json_pointer>& paths) {
  if (value.is_object())
    for (const auto& [key, member] : value.items()) add_paths(member, at / key, paths);
  if (value.is_array()) {
    const size_t n = value.size();
    for (const size_t i : std::set<size_t>{0, n / 2, n - 1})
      if (i < n) add_paths(value[i], at / i, paths);
  }
  if (!at.empty()) paths.push_back(at);
}

enum class Change { absent, other_value, other_type };

Json other_value(const Json& v) {
  if (v.is_boolean()) return !v.get<bool>();
  if (v.is_number_integer()) return v.get<int64_t>() + 1;
  if (v.is_number()) return v.get<double>() + 0.5;
  if (v.is_string()) return v.get<std::string>() + "x";
  if (v.is_array()) return v.size() > 1 ? Json(std::vector<Json>(v.rbegin(), v.rend())) : Json::array({v, v});
  if (v.is_object()) {
    Json more = v;
    more["one_more"] = 1;
    return more;
  }
  return 1;
}

Json other_type(const Json& v) { return v.is_string() ? Json(1) : Json("text"); }

void apply(Json& document, const Json::json_pointer& at, Change change) {
  Json& value = document[at];
  if (change == Change::other_value) {
    value = other_value(value);
  } else if (change == Change::other_type) {
    value = other_type(value);
  } else {
    Json& holder = document[at.parent_pointer()];
    if (holder.is_array())
      holder.erase(size_t(std::stoul(at.back())));
    else
      holder.erase(at.back());
  }
}

/// A path as text, such as "sets[0].tensors[3].rank".
std::string written(Json::json_pointer at) {
  if (at.empty()) return {};
  const std::string last = at.back(), before = written(at.parent_pointer());
  if (last.find_first_not_of("0123456789") == last.npos) return before + "[" + last + "]";
  return before.empty() ? last : before + "." + last;
}

/// Whether a report names the file and the value: by its path, by its key, or by the tensor or file of its entry.
bool names(const std::string& report, const std::string& file, const Json& document, Json::json_pointer at) {
  if (report.find(file + ": " + written(at)) != std::string::npos) return true;
  for (; !at.empty(); at = at.parent_pointer()) {
    if (report.find(at.back()) != std::string::npos && at.back().find_first_not_of("0123456789") != std::string::npos)
      return true;
    const Json& value = document[at];
    if (value.is_object() && value.contains("name"))
      return report.find(value["name"].get<std::string>()) != std::string::npos;
  }
  return false;
}

/// The report without the line about the text's form, which seal() changes.
std::string without_layout(const std::string& report) {
  std::istringstream lines(report);
  std::string rest;
  for (std::string line; std::getline(lines, line);)
    if (line.find("the same meaning, but not the text") == line.npos && line.find(": wrong: ") == line.npos)
      rest += line + "\n";
  return rest;
}

struct Tally {
  int changes = 0, found = 0, named = 0;
  std::string missed, unnamed;
};

/// The version cannot be proved, because another version's manifest may differ.
bool cannot_be_known(const Json::json_pointer& at) { return at.to_string() == "/tool/version"; }

void change_every_field(const std::string& out, const std::string& source, const std::string& name, Tally& tally) {
  const std::string before = read_text(out + "/" + name, 1 << 24);
  const std::string manifest = read_text(out + "/" + manifest_name, 1 << 24);
  const bool is_table = name.ends_with(".jsonl");
  const Json document = is_table ? lines_of(before) : parse_json(before, name);
  std::vector<Json::json_pointer> paths;
  add_paths(document, Json::json_pointer(), paths);
  for (const Json::json_pointer& at : paths)
    for (const Change change : {Change::absent, Change::other_value, Change::other_type}) {
      if (cannot_be_known(at)) continue;
      Json changed = document;
      apply(changed, at, change);
      if (changed == document) continue;
      if (name == manifest_name) {
        if (at.to_string() == "/xxh3_128") continue;  // seal() updates it
        seal(out, changed);
      } else {
        std::string text = is_table ? "" : changed.dump(2) + "\n";
        if (is_table)
          for (const Json& line : changed) text += line.dump() + "\n";
        write_text(out + "/" + name, text);
        list_again(out, name);
      }
      const Answer answer = verify_all(out, source);
      const std::string found = without_layout(answer.text);
      ++tally.changes;
      tally.found += !answer.right && !found.empty();
      tally.named += names(found, name, document, at);
      if (found.empty()) tally.missed += fmt::format("\n{} {} {}", name, at.to_string(), int(change));
      if (!names(found, name, document, at))
        tally.unnamed += fmt::format("\n{} {}: {}", at.to_string(), int(change), found);
      write_text(out + "/" + manifest_name, manifest);
    }
  write_text(out + "/" + name, before);
}

/// The full form tests all families and backends, the short form one.
bool in_full() { return std::getenv("MXFP4_TEST_FULL") != nullptr; }

struct Case {
  const char *model, *engine, *backend;
};

}  // namespace

TEST_CASE("verify finds each field of manifest, index and config that is not what the source gives", "[long]") {
  const Case cases[] = {{"gpt-oss-20b", "vllm", "marlin"},           {"deepseek-v4-flash", "sglang", "marlin"},
                        {"gpt-oss-20b", "vllm", "triton-hopper"},    {"gpt-oss-20b", "vllm", "flashinfer-cutlass"},
                        {"deepseek-v4-flash", "vllm", "deepgemm"},   {"kimi-k3", "vllm", "marlin"},
                        {"gpt-oss-20b", "vllm", "flashinfer-trtllm"}};
  for (const Case& c : cases) {
    if (!in_full() && &c != cases) continue;
    const TempDir dir;
    write_synth(c.model, dir / "in", {});
    convert(conversion(dir / "in", dir / "out", c.engine, c.backend));
    REQUIRE(verify_all(dir / "out", dir / "in").right);
    Tally tally;
    for (const char* name : {manifest_name, "config.json", "model.safetensors.index.json", "packed/tensors-0.jsonl",
                             "packed/source-tensors.jsonl"})
      change_every_field(dir / "out", dir / "in", name, tally);
    INFO(c.model << " " << c.backend << ": " << tally.changes << " changes, missed:" << tally.missed);
    CHECK(tally.changes > 300);
    CHECK(tally.found == tally.changes);
    INFO("not named:" << tally.unnamed);
    CHECK(tally.named * 100 >= tally.changes * 95);
  }
}

TEST_CASE("verify finds files that are missing, exchanged, changed or too many") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  const std::string out = dir / "out";
  SECTION("one more") {
    const std::string name = GENERATE("model.safetensors", "pytorch_model.bin", "modeling.py", "packed/more");
    write_text(out + "/" + name, "");
    CHECK(verify_all(out, {}).text.find(name + ": not listed in") != std::string::npos);
  }
  SECTION("each missing, and with one bit changed") {
    for (const auto& [name, text] : contents_of(out)) {
      INFO(name);
      fs::rename(out + "/" + name, dir / "kept");
      CHECK(!verify_all(out, tiny_gpt_oss).right);
      fs::rename(dir / "kept", out + "/" + name);
      flip(out + "/" + name, int64_t(text.size()) / 2);
      CHECK(!verify_all(out, tiny_gpt_oss).right);
      flip(out + "/" + name, int64_t(text.size()) / 2);
    }
  }
  SECTION("two exchanged and listed so") {
    fs::rename(out + "/packed/packed-00001.safetensors", dir / "kept");
    fs::rename(out + "/rest-00001.safetensors", out + "/packed/packed-00001.safetensors");
    fs::rename(dir / "kept", out + "/rest-00001.safetensors");
    CHECK(!verify_all(out, tiny_gpt_oss).right);
  }
  SECTION("the canary changed and listed so") {
    flip(out + "/packed/canary-0.safetensors", 3000);
    list_again(out, "packed/canary-0.safetensors");
    CHECK(verify_all(out, {}).text.find("packed/canary-0.safetensors: ") != std::string::npos);
  }
  SECTION("the source's headers changed and listed so") {
    const std::string name = "packed/source-headers", path = out + "/" + name;
    std::string text = read_text(path, 1 << 20);
    const std::string good = text;
    write_text(path, text.replace(text.find("\"pt\""), 4, "\"tp\""));
    list_again(out, name);
    CHECK(verify_all(out, tiny_gpt_oss).text.find(name + ": differs from the text for this checkpoint") !=
          std::string::npos);
    write_text(path, good.substr(0, good.size() - 1));
    list_again(out, name);
    CHECK(verify_all(out, {}).text.find(name + ": ends within the header of model-0000") != std::string::npos);
    write_text(path, good + "x");
    list_again(out, name);
    CHECK(verify_all(out, {}).text.find(name + ": 1 bytes more") != std::string::npos);
    text = good;
    write_text(path, text.replace(text.find("model.norm.weight"), 5, "mudel"));
    list_again(out, name);
    CHECK(verify_all(out, {}).text.find("model.norm.weight is in no shard") != std::string::npos);
  }
  SECTION("an empty folder") {
    fs::create_directory(out + "/empty");
    CHECK(verify_all(out, {}).text.find("empty/: not listed in mxfp4-pack.json") != std::string::npos);
  }
  SECTION("what tools keep in a directory") {
    fs::create_directory(out + "/.cache");
    write_text(out + "/.cache/etag", "1");
    write_text(out + "/.gitattributes", "");
    CHECK(verify_all(out, {}).right);
  }
}

TEST_CASE("a manifest of another version is compared by its meaning") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  Json manifest = parse_json(read_text(dir / "out/mxfp4-pack.json", 1 << 24), manifest_name);
  manifest["tool"]["version"] = "0.0.9";
  const auto finds = [&](const std::string& text) {
    seal(dir / "out", manifest);
    return verify_all(dir / "out", tiny_gpt_oss).text.find(text) != std::string::npos;
  };
  Json& set = manifest["sets"][0];
  seal(dir / "out", manifest);
  CHECK(verify_all(dir / "out", tiny_gpt_oss).right);
  SECTION("settings that none has written") {
    set["requires"]["moe_backend"] = "triton";
    CHECK(finds("sets[0].requires.moe_backend: \"triton\", \"marlin\" expected"));
  }
  SECTION("no version") {
    manifest["tool"]["version"] = "ours";
    CHECK(finds("tool.version: 'ours' is not a version"));
  }
  ConvertOptions again = conversion(tiny_gpt_oss, dir / "out", "vllm");
  again.force = true;
  convert(again);
  const Answer now = verify_all(dir / "out", tiny_gpt_oss);
  INFO(now.text);
  CHECK(now.right);
}

TEST_CASE("the engine's version is in the manifest, and one that loads other bytes is found") {
  const TempDir dir;
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "vllm");
  o.engine_version = "0.30.0";
  convert(o);
  CHECK(read_manifest_file(dir / "out/mxfp4-pack.json").sets[0].engine_version == "0.30.0");
  CHECK(verify_all(dir / "out", tiny_gpt_oss).right);
  Json manifest = parse_json(read_text(dir / "out/mxfp4-pack.json", 1 << 24), manifest_name);
  manifest["sets"][0]["engine_version"] = "0.20.1";
  seal(dir / "out", manifest);
  CHECK(verify_all(dir / "out", {}).text.find("engine_version: vllm 0.20.1 does not load layout version 1") !=
        std::string::npos);
}

TEST_CASE("a file of a kind that is not known is not left out in silence") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  Json manifest = parse_json(read_text(dir / "out/mxfp4-pack.json", 1 << 24), manifest_name);
  for (Json& f : manifest["files"])
    if (f["name"] == "LICENSE") f["kind"] = "licence";
  seal(dir / "out", manifest);
  const std::string said = "LICENSE: unknown kind 'licence'";
  CHECK_THROWS_WITH(run_unpack(dir / "out", dir / "back"), Catch::Contains(said));
  CHECK_THROWS_WITH(convert(conversion(dir / "out", dir / "other", "sglang")), Catch::Contains(said));
  CHECK(!fs::exists(dir / "back"));
}

TEST_CASE("a set is not added to an output that is seen to be damaged") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "sglang");
  o.add = true;
  SECTION("a table") {
    flip(dir / "out/packed/tensors-0.jsonl", 100);
    CHECK_THROWS_WITH(convert(o), Catch::Contains("tensors-0.jsonl: it does not have the checksum"));
    CHECK(!fs::exists(dir / ".out.mxfp4-pack/new"));
  }
  SECTION("a file that is cut short") {
    fs::resize_file(dir / "out/packed/canary-0.safetensors", 100);
    CHECK_THROWS_WITH(convert(o), Catch::Contains("canary-0.safetensors: 100 bytes"));
  }
  SECTION("a companion") {
    write_text(dir / "out/LICENSE", std::string(71, 'x'));
    CHECK_THROWS_WITH(convert(o), Catch::Contains("LICENSE: it does not have the checksum"));
  }
}
