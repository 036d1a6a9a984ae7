// What a run may change in an output, its source and other users' files.
#include "src/io/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>

#include "src/convert/destination.h"
#include "src/io/leftover.h"
#include "src/packed/file_checks.h"
#include "src/packed/manifest.h"
#include "tests/support/make_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/said.h"

using namespace mxfp4;

namespace fs = std::filesystem;

namespace {

std::string refusal_of(const ConvertOptions& o) {
  return said_by([&] { convert(o); });
}

/// The staging directory of `dir`/out.
std::string stage(const TempDir& dir, const std::string& name = {}) {
  return dir / (".out.mxfp4-pack" + (name.empty() ? "" : "/" + name));
}

void make_private(const std::string& folder) {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
}

/// Leaves the journal of a run that was killed when its output was whole, and the run file in `place`.
void leave_finished(const TempDir& dir, const std::string& place) {
  make_private(stage(dir));
  const JournalHead head{"other", "other", "run", {}};
  const Folder folder = Folder::open(stage(dir));
  Journal journal(folder, staged_journal, "out");
  journal.begin(head);
  journal.add(0, "record");
  journal.finish(manifest_name);
  if (!place.empty()) write_run_file(Folder::open(place), "out", head);
}

}  // namespace

TEST_CASE("whoever will write takes the lock before reading anything of OUT") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  write_text(dir / "out/mxfp4-pack.json", "half written");
  make_private(stage(dir));
  const Fd held = open_own(stage(dir, "journal"));
  REQUIRE(::flock(held.get(), LOCK_EX | LOCK_NB) == 0);
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "sglang");
  o.add = true;
  CHECK(refusal_of(o).find("another run of mxfp4-pack is writing it") != std::string::npos);
  o.add = false;
  CHECK(refusal_of(o).find("another run of mxfp4-pack is writing it") != std::string::npos);
}

TEST_CASE("a damaged output is not converted any further") {
  for (const std::string file :
       {"packed/packed-00001.safetensors", "rest-00001.safetensors", "generation_config.json"}) {
    const TempDir dir;
    fs::copy(tiny_gpt_oss, dir / "in", fs::copy_options::recursive);
    if (!fs::exists(dir / ("in/" + file))) write_text(dir / "in/generation_config.json", "{\"top_k\": 1}\n");
    convert(conversion(dir / "in", dir / "out", "vllm"));
    INFO(file);
    flip(dir / ("out/" + file), int64_t(fs::file_size(dir / ("out/" + file))) / 2);
    CHECK(refusal_of(conversion(dir / "out", dir / "again", "sglang")).find("checksum") != std::string::npos);
    CHECK_THROWS_AS(run_unpack(dir / "out", dir / "back"), Error);
    CHECK(!fs::exists(dir / "again"));
    CHECK(!fs::exists(dir / "back"));
  }
}

TEST_CASE("verify compares all of the source with what the output was made from") {
  const TempDir dir;
  fs::copy(tiny_gpt_oss, dir / "in", fs::copy_options::recursive);
  write_text(dir / "in/generation_config.json", "{\"top_k\": 1}\n");
  convert(conversion(dir / "in", dir / "out", "vllm"));
  REQUIRE(is_right(dir / "out", dir / "in"));
  SECTION("another companion") { write_text(dir / "in/generation_config.json", "{\"top_k\": 2}\n"); }
  SECTION("one more companion") { write_text(dir / "in/tokenizer.json", "{}"); }
  SECTION("one companion less") { fs::remove(dir / "in/generation_config.json"); }
  SECTION("another config.json") {
    Json config = parse_json(read_text(dir / "in/config.json", 1 << 20), "config.json");
    config["rope_theta"] = 1;
    write_text(dir / "in/config.json", config.dump());
  }
  CHECK(!is_right(dir / "out", dir / "in"));
}

TEST_CASE("a file has its size before anything is written, whatever had its name") {
  const TempDir dir;
  OutputDir out(place_of(dir / "out"), dir / "out", nullptr);
  out.open({});
  for (const int64_t before : {-1, 0, 70000, 200000}) {
    if (before >= 0) {
      const Fd earlier = open_own(out.built(), "file");
      REQUIRE(::ftruncate(earlier.get(), before) == 0);
    }
    CHECK(out.create("file", 100000).stat().st_size == 100000);
  }
  CHECK(out.create("file", 0).stat().st_size == 0);
}

TEST_CASE("names have one spelling") {
  for (const char* name : {"sub//dense.dat", "sub/./dense.dat", "sub/dense.dat/", "./dense.dat"})
    CHECK(!is_safe_name(name));
  CHECK(is_safe_name("sub/dense.dat"));
}

TEST_CASE("nothing is written through a link that was there") {
  const TempDir dir;
  write_text(dir / "victim", "untouched");
  SECTION("a new file") {
    fs::create_symlink(dir / "victim", dir / "file");
    write_text(dir / "file", "new");
  }
  SECTION("a hard link where a run goes on") {
    fs::create_hard_link(dir / "victim", dir / "file");
    open_own(dir / "file").write("new", 3, 0);
  }
  SECTION("a journal") {
    make_private(stage(dir));
    fs::create_symlink(dir / "victim", stage(dir, "journal"));
    CHECK(refusal_of(conversion(tiny_gpt_oss, dir / "out", "vllm")).find("is a link") != std::string::npos);
  }
  SECTION("a staging directory") {
    make_private(dir / "elsewhere");
    fs::create_directory_symlink(dir / "elsewhere", stage(dir));
    CHECK(refusal_of(conversion(tiny_gpt_oss, dir / "out", "vllm")).find("is a link") != std::string::npos);
    CHECK(fs::is_empty(dir / "elsewhere"));
  }
  CHECK(read_text(dir / "victim", 100) == "untouched");
}

TEST_CASE("what comes into OUT while a run writes is kept") {
  const TempDir dir;
  const auto list = [](const Folder& d) {
    return d.has("made") ? std::vector<std::string>{"made"} : std::vector<std::string>();
  };
  fs::create_directory(dir / "out");
  const bool replaces = GENERATE(false, true);
  if (replaces) write_text(dir / "out/made", "before");
  OutputDir out(place_of(dir / "out"), dir / "out", list);
  out.open({.existing = replaces ? Existing::replace : Existing::refuse, .made = {"made"}});
  out.write_text("made", "after");
  write_text(dir / "out/notes.txt", "a note");
  fs::create_directory(dir / "out/sub");
  write_text(dir / "out/sub/notes.txt", "another");
  if (replaces) write_text(dir / "out/made", "edited meanwhile");
  set_verbosity(Verbosity::quiet);
  out.commit();
  auto now = contents_of(dir / "out");
  CHECK(now.at("made") == "after");
  CHECK(now.at("notes.txt") == "a note");
  CHECK(now.at("sub/notes.txt") == "another");
  if (replaces) CHECK(now.at("made.kept-1") == "edited meanwhile");
  CHECK(!fs::exists(stage(dir)));
}

TEST_CASE("folders and links that are not ours are not replaced") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  SECTION("an empty folder") { fs::create_directory(dir / "out/mine"); }
  SECTION("a link to a folder") { fs::create_directory_symlink("/", dir / "out/mine"); }
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "vllm");
  o.force = true;
  CHECK(refusal_of(o).find("mine was not made by mxfp4-pack") != std::string::npos);
}

TEST_CASE("an output whose folders are read-only is replaced whole") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  fs::permissions(dir / "out/packed", fs::perms::owner_write, fs::perm_options::remove);
  fs::permissions(dir / "out", fs::perms::owner_write, fs::perm_options::remove);
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "sglang");
  o.force = true;
  convert(o);
  CHECK(is_right(dir / "out", tiny_gpt_oss));
  CHECK(std::distance(fs::directory_iterator(dir / "."), fs::directory_iterator()) == 1);
}

TEST_CASE("a finished journal without its output changes nothing") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  const auto whole = contents_of(dir / "out");
  leave_finished(dir, "");
  for (const auto& entry : fs::directory_iterator(dir / "out")) fs::remove_all(entry);
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  CHECK(contents_of(dir / "out") == whole);
}

TEST_CASE("what a run left that was cut short at its end is finished by the next") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  convert(conversion(tiny_gpt_oss, dir / "old", "sglang"));
  const bool is_out_whole = GENERATE(true, false);
  leave_finished(dir, is_out_whole ? dir / "out" : "");
  fs::rename(dir / "old", stage(dir, GENERATE("new", "old")));  // the output that the run replaced
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "vllm");
  if (!is_out_whole) {  // another user has put another output in its place
    o.force = true;
    CHECK_THAT(refusal_of(o), Catch::Contains("an old output, and") && Catch::Contains("move it away first"));
    CHECK(find_leftovers(Folder::open(dir / "")).at(0).kind == LeftoverKind::strange);
    CHECK_THROWS_AS(OutputDir::clean(place_of(dir / "out"), owned_files), Error);
    CHECK(is_right(dir / "out", tiny_gpt_oss));
    return;
  }
  CHECK(find_leftovers(Folder::open(dir / "")).at(0).kind == LeftoverKind::replaced);
  CHECK(is_right(dir / "out", tiny_gpt_oss));
  const bool is_changed = GENERATE(true, false);
  if (is_changed) {
    const std::string old = stage(dir, fs::exists(stage(dir, "new")) ? "new" : "old");
    write_text(old + "/notes.txt", "a note");
    CHECK_THAT(refusal_of(o), Catch::Contains("and notes.txt, which mxfp4-pack did not make; move that away"));
    CHECK(read_text(dir / "out/notes.txt", 100) == "a note");
  } else {
    CHECK(convert(o)["unchanged"] == true);
  }
  CHECK(!fs::exists(dir / "out/.mxfp4-pack-run"));
  CHECK(!fs::exists(stage(dir)));
}

TEST_CASE("a run file that is left in OUT does no harm and goes") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  write_run_file(Folder::open(dir / "out"), "out", {"o", "s", "run", {}});
  REQUIRE(has_run_file(Folder::open(dir / "out")));
  CHECK(is_right(dir / "out", tiny_gpt_oss));
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", GENERATE("vllm", "sglang"));
  o.force = o.engine == "sglang";
  convert(o);
  CHECK(!has_run_file(Folder::open(dir / "out")));
  CHECK(is_right(dir / "out", tiny_gpt_oss));
}

TEST_CASE("an old output between two renames is put back") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "old", "vllm"));
  const bool is_finished = GENERATE(true, false);
  if (is_finished)
    leave_finished(dir, "");
  else
    make_private(stage(dir));
  fs::rename(dir / "old", stage(dir, is_finished ? GENERATE("new", "old") : "old"));
  if (is_finished) {
    CHECK(find_leftovers(Folder::open(dir / "")).at(0).kind == LeftoverKind::predecessor);
    CHECK(convert(conversion(tiny_gpt_oss, dir / "out", "vllm"))["unchanged"] == true);
    CHECK(is_right(dir / "out", tiny_gpt_oss));
  } else {  // no run of mxfp4-pack leaves that
    CHECK_THAT(refusal_of(conversion(tiny_gpt_oss, dir / "out", "vllm")), Catch::Contains("move it away"));
    CHECK(find_leftovers(Folder::open(dir / "")).at(0).kind == LeftoverKind::strange);
  }
}

TEST_CASE("going on with a partial output writes its run file no second time") {
  const TempDir dir;
  {
    OutputDir out(place_of(dir / "out"), dir / "out", {});
    out.open({.options = "o", .source = "s"});
    out.journal().add(0, "record");
    out.keep(true);
  }
  const std::string file = stage(dir, std::string("new/") + run_file);
  const auto old = fs::last_write_time(file) - std::chrono::hours(1);
  fs::last_write_time(file, old);
  OutputDir out(place_of(dir / "out"), dir / "out", {});
  out.open({.options = "o", .source = "s"});
  CHECK(out.journal().records().size() == 1);
  CHECK(fs::last_write_time(file) == old);  // a kill during this write would leave a run that cannot be continued
}

TEST_CASE("an output that was replaced meanwhile is not called changed") {
  const TempDir dir;
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "vllm");
  convert(o);
  o.force = true;
  const NewOutput to(o, nullptr);
  CHECK_NOTHROW(to.check({}));
  convert(conversion(tiny_gpt_oss, dir / "other", "sglang"));
  fs::remove_all(dir / "out");
  fs::rename(dir / "other", dir / "out");
  CHECK_THROWS_WITH(to.check({}), Catch::Contains("was replaced during the run"));
  write_text(dir / "out/config.json", "{}");
  CHECK_THROWS_WITH(NewOutput(o, nullptr).check({}), Catch::Contains("config.json was changed since it was written"));
}

TEST_CASE("parts that another node has begun to merge are not cleaned away") {
  const TempDir dir;
  make_private(stage(dir));
  make_private(stage(dir, "parts"));
  fs::create_directories(stage(dir, "parts/merging/elsewhere.7"));
  CHECK(said_by([&] { OutputDir::clean(place_of(dir / "out"), owned_files); }).find("is being merged") !=
        std::string::npos);
  CHECK(fs::exists(stage(dir, "parts/merging/elsewhere.7")));
}
