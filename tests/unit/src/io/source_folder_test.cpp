// The files of a source that are opened, the permitted links, and the permissions of the output.
#include "src/io/source_folder.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "src/base/error.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

namespace fs = std::filesystem;

namespace {

/// The text of a file, or the problem of opening it.
std::string read(const SourceFolder& folder, const std::string& name) {
  Problems problems;
  const std::string text = folder.text(name, 1000, problems);
  return problems.any() ? problems.errors().front() : text;
}

struct Tree {
  TempDir dir;
  Tree() {
    for (const char* folder : {"model", "model/sub", "other", "other/inner"}) fs::create_directory(dir / folder);
    write_text(dir / "model/config.json", "config");
    write_text(dir / "model/sub/notes", "notes");
    write_text(dir / "other/inner/secret", "secret");
    for (const char* folder : {"", "model", "model/sub", "other", "other/inner"})
      fs::permissions(dir / folder, fs::perms(0755));
    for (const char* file : {"model/config.json", "model/sub/notes", "other/inner/secret"})
      fs::permissions(dir / file, fs::perms(0644));
  }
  mode_t denied(const std::string& name, Links links = Links::stay) const {
    const SourceFolder folder(dir / "model", links);
    read(folder, name);
    return folder.permitted().denied(false);
  }
};

}  // namespace

TEST_CASE("links within a source are followed, others are not") {
  const Tree tree;
  fs::create_symlink("sub/notes", tree.dir / "model/within");
  fs::create_symlink("../other/inner/secret", tree.dir / "model/out");
  fs::create_symlink("../model/config.json", tree.dir / "model/around");
  fs::create_symlink("nowhere", tree.dir / "model/broken");
  fs::create_symlink("itself", tree.dir / "model/itself");
  fs::create_symlink(tree.dir / "other", tree.dir / "model/folder");
  ::mkfifo((tree.dir / "model/fifo").c_str(), 0600);
  const SourceFolder stay(tree.dir / "model"), offer(tree.dir / "model", Links::offer);
  CHECK(read(stay, "config.json") == "config");
  CHECK(read(stay, "within") == "notes");
  CHECK(read(stay, "around") == "config");
  const std::string out = "links outside the directory, to " + fs::canonical(tree.dir / "other/inner/secret").string();
  CHECK(read(stay, "out") == "out: " + out);
  CHECK(read(offer, "out") == "out: " + out + "; give --follow-links to read it");
  CHECK(read(stay, "folder/inner/secret") == "folder/inner/secret: " + out);
  CHECK(read(stay, "../other/inner/secret") == "../other/inner/secret: " + out);
  CHECK(read(SourceFolder(tree.dir / "model", Links::follow), "out") == "secret");
  CHECK(read(stay, "broken") == "broken: broken link to nowhere; incomplete copy?");
  CHECK(read(stay, "itself") == "itself: a link that leads to itself; remove it");
  CHECK(read(stay, "absent") == "absent: missing; incomplete copy?");
  CHECK(read(stay, "fifo") == "fifo: not a regular file");
  CHECK(read(stay, "sub") == "sub: not a regular file");
  CHECK(stay.leads_out("out"));
  CHECK_FALSE(stay.leads_out("within"));
  CHECK_FALSE(stay.leads_out("broken"));
}

TEST_CASE("another folder that takes a source's name is not read") {
  const Tree tree;
  const SourceFolder folder(tree.dir / "model");
  fs::rename(tree.dir / "model", tree.dir / "moved");
  fs::rename(tree.dir / "other", tree.dir / "model");
  write_text(tree.dir / "model/config.json", "another");
  CHECK(read(folder, "config.json") == "config");
  CHECK(read_text(folder.path("sub/notes"), 100) == "notes");
}

TEST_CASE("a source permits what its folders and the files that were opened do") {
  const Tree tree;
  CHECK(tree.denied("config.json") == 022);
  fs::permissions(tree.dir / "model/sub/notes", fs::perms(0640));
  CHECK(tree.denied("config.json") == 022);  // unread files do not count
  CHECK(tree.denied("sub/notes") == 027);
  fs::permissions(tree.dir / "model/sub/notes", fs::perms(0644));
  fs::permissions(tree.dir / "model/sub", fs::perms(0700));
  CHECK(tree.denied("sub/notes") == 077);
  fs::permissions(tree.dir / "model", fs::perms(0750));
  CHECK(tree.denied("config.json") == 027);
  CHECK(SourceFolder(tree.dir / "absent").permitted().denied(true) == 077);
}

TEST_CASE("a followed link counts with every folder that leads to its file alone") {
  const Tree tree;
  fs::create_symlink("../other/inner/secret", tree.dir / "model/out");
  CHECK(tree.denied("out", Links::follow) == 022);
  fs::permissions(tree.dir / "other", fs::perms(0700));
  CHECK(tree.denied("out", Links::follow) == 077);
  fs::permissions(tree.dir / "other", fs::perms(0755));
  fs::permissions(tree.dir / "", fs::perms(0700));  // the directory above contains the source
  CHECK(tree.denied("out", Links::follow) == 022);
}

TEST_CASE("links into the blobs of the same cache entry are followed") {
  const TempDir dir;
  const std::string hash(64, 'a');
  fs::create_directories(dir / "models--a--b/snapshots/rev");
  fs::create_directories(dir / "models--a--b/blobs");
  write_text(dir / ("models--a--b/blobs/" + hash), "blob");
  write_text(dir / "models--a--b/other", "other");
  fs::create_symlink("../../blobs/" + hash, dir / "models--a--b/snapshots/rev/config.json");
  fs::create_symlink("../../other", dir / "models--a--b/snapshots/rev/notes");
  const SourceFolder folder(dir / "models--a--b/snapshots/rev");
  CHECK(read(folder, "config.json") == "blob");
  CHECK(read(folder, "notes").starts_with("notes: links outside the directory"));
  // On another disk, only files with the names of blobs are allowed.
  fs::rename(dir / "models--a--b/blobs", dir / "big");
  write_text(dir / "big/id_rsa", "key");
  fs::create_symlink(dir / "big", dir / "models--a--b/blobs");
  fs::create_symlink("../../blobs/id_rsa", dir / "models--a--b/snapshots/rev/key");
  CHECK(read(folder, "config.json") == "blob");
  CHECK(read(folder, "key").starts_with("key: links outside the directory"));
}
