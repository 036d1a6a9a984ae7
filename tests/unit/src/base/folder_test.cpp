// Entries of folders. Links and unreadable folders are not entered.
#include "src/base/folder.h"

#include <catch2/catch.hpp>

#include "tests/support/includes.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

namespace fs = std::filesystem;

namespace {

void make_tree(const TempDir& dir) {
  fs::create_directories(dir / "b/c/d");
  write_text(dir / "b/c/file", "x");
  write_text(dir / "a", "x");
  fs::create_directory_symlink("b", dir / "link");
  fs::create_symlink("nowhere", dir / "dangling");
}

std::vector<std::string> described(const std::vector<Entry>& entries) {
  std::vector<std::string> out;
  for (const Entry& e : entries)
    out.push_back(e.name + (e.is_folder() ? "/" : e.is_link() ? "@" : e.is_file() ? "" : "?"));
  return out;
}

using EntryNames = std::vector<std::string>;

}  // namespace

TEST_CASE("entries come by name, folders before what is in them, links are not followed") {
  const TempDir dir;
  make_tree(dir);
  CHECK(described(entries_below(dir / "")) ==
        EntryNames{"a", "b/", "b/c/", "b/c/d/", "b/c/file", "dangling@", "link@"});
  CHECK(described(entries_below(dir / "link")) == EntryNames{"c/", "c/d/", "c/file"});  // the argument may be a link
  CHECK(entries_below(dir / "b").front().path == dir / "b/c");
  CHECK(names_in_folder(dir / "") == EntryNames{"a", "b", "dangling", "link"});
  CHECK(files_below(Folder::open(dir / "")) == EntryNames{"a", "b/c/file", "dangling", "link"});
}

TEST_CASE("a folder is entered where the visitor says so, after its visit") {
  const TempDir dir;
  make_tree(dir);
  EntryNames seen;
  walk(dir / "", [&](const Entry& entry) {
    seen.push_back(entry.name);
    if (entry.name == "b") fs::remove_all(dir / "b/c/d");
    return entry.name == "b";
  });
  CHECK(seen == EntryNames{"a", "b", "b/c", "dangling", "link"});
}

TEST_CASE("what cannot be read is an error or passed over, as its caller says") {
  const TempDir dir;
  make_tree(dir);
  for (const char* name : {"a", "no such", "dangling"}) {
    INFO(name);
    CHECK_THROWS_AS(names_in_folder(dir / name), fs::filesystem_error);
    CHECK_THROWS_AS(entries_below(dir / name), fs::filesystem_error);
    CHECK(names_in_folder(dir / name, Unreadable::skip).empty());
    CHECK(entries_below(dir / name, Unreadable::skip).empty());
  }
  const auto remove_each = [](const Entry& entry) { return fs::remove_all(entry.path), true; };
  CHECK_THROWS_AS(walk(dir / "b", remove_each), fs::filesystem_error);  // the folder is removed before it is read
}

TEST_CASE("a tree is removed, what links lead to is not") {
  const TempDir dir;
  make_tree(dir);
  const Folder folder = Folder::open(dir / "");
  remove_tree(folder, "link");
  CHECK(names_in_folder(dir / "") == EntryNames{"a", "b", "dangling"});
  fs::create_directory_symlink("../../b", dir / "b/c/up");
  remove_tree(folder, "b");
  remove_tree(folder, "a");
  remove_tree(folder, "b");
  CHECK(names_in_folder(dir / "") == EntryNames{"dangling"});
  CHECK_THROWS_AS(remove_tree(Folder::open("/proc"), "self"), fs::filesystem_error);
}

TEST_CASE("a held folder stays the same one, and no name leads out of it") {
  const TempDir dir;
  make_tree(dir);
  const Folder held = Folder::open(dir / "b");
  CHECK(held.is_at(Folder::open(dir / ""), "b"));
  fs::rename(dir / "b", dir / "moved");
  fs::create_directory_symlink(dir / "moved", dir / "b");
  fs::create_directory(dir / "elsewhere");
  fs::create_directory_symlink(dir / "elsewhere", dir / "moved/out");
  CHECK(!held.is_at(Folder::open(dir / ""), "b"));
  SECTION("what is written goes to the folder that was opened") {
    write_text(held, "new", "x");
    CHECK(read_text(dir / "moved/new", 10) == "x");
    CHECK(read_text(held, "c/file", 10) == "x");
  }
  SECTION("a step that is a link is no folder") {
    CHECK(!held.find("out"));
    CHECK(!held.has("out/new"));
    CHECK_THROWS_AS(write_text(held, "out/new", "x"), Error);
    CHECK(held.unlink("out/new") != 0);
    CHECK(held.rename("c/file", held, "out/new") != 0);
  }
  SECTION("nor are names that are no plain relative ones") {
    for (const char* name : {"../a", "/etc/passwd", "c/../../a", "./c", "c//file", "", ".", ".."}) {
      INFO(name);
      CHECK_THROWS_AS(held.look(name), Error);
    }
  }
  SECTION("a link that has the name of a new file goes, and what it leads to stays") {
    fs::create_symlink(dir / "a", dir / "moved/new");
    write_text(held, "new", "changed");
    CHECK(read_text(dir / "a", 10) == "x");
  }
  CHECK(fs::exists(dir / "moved/c/file") != fs::exists(dir / "elsewhere/new"));
  CHECK(names_in_folder(dir / "elsewhere").empty());
}

TEST_CASE("a folder that is made is this user's alone, whatever the umask") {
  const TempDir dir;
  const mode_t before = ::umask(0);
  const Folder made = Folder::open(dir / "").make("made");
  ::umask(before);
  CHECK((made.stat().st_mode & 07777) == 0700);
  CHECK_THROWS_AS(Folder::open(dir / "").make("made"), Error);
  CHECK(Folder::open(dir / "").make_or_find("made").is_at(Folder::open(dir / ""), "made"));
}

TEST_CASE("nothing but these lists folders") {
  size_t files = 0;
  for (const std::string& file : sources_below("src")) {
    INFO(file);
    const std::string text = read_text((source_root() / file).string(), 1 << 24);
    for (const char* name : {"directory_iterator", "fs::remove_all", "fs::is_empty"})
      CHECK(text.find(name) == text.npos);
    ++files;
  }
  CHECK(files > 100);
}
