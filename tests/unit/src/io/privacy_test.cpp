// The permissions of the files that a run creates.
#include "src/io/privacy.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "src/io/journal.h"
#include "src/io/permitted.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;

namespace fs = std::filesystem;

namespace {

mode_t mode_of(const fs::path& path) { return mode_t(fs::status(path).permissions()) & 0777; }

/// A copy of the tiny checkpoint with this mode of its files.
std::string source_with(const TempDir& dir, const std::string& name, mode_t mode) {
  fs::copy(tiny_gpt_oss, dir / name, fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(dir / name)) fs::permissions(entry.path(), fs::perms(mode));
  return dir / name;
}

/// The union of the mode bits of all files of an output.
mode_t any_mode(const std::string& out) {
  mode_t all = 0;
  for (const auto& entry : fs::recursive_directory_iterator(out))
    if (entry.is_regular_file()) all |= mode_of(entry.path());
  return all;
}

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }

 private:
  mode_t before_;
};

}  // namespace

TEST_CASE("the umask is read and not set") {
  for (const mode_t mask : {0, 022, 077}) {
    const Umask set(mask);
    CHECK(process_umask() == mask);
    CHECK(process_umask() == mask);
  }
}

TEST_CASE("conversions of one process do not change each other's modes") {
  const TempDir dir;
  const Umask open(0);
  const std::string secret = source_with(dir, "secret", 0600), shared = source_with(dir, "shared", 0644);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round)
        convert(conversion(i % 2 ? secret : shared, dir / fmt::format("out-{}-{}", i, round), "vllm"));
    });
  for (std::thread& t : threads) t.join();
  CHECK(process_umask() == 0);
  for (int i = 0; i < 8; ++i)
    for (int round = 0; round < 3; ++round) {
      const std::string out = dir / fmt::format("out-{}-{}", i, round);
      INFO(out);
      CHECK(any_mode(out) == (i % 2 ? 0600 : 0644));
      CHECK(mode_of(out) == (i % 2 ? 0700 : 0755));
    }
}

TEST_CASE("no other user can open a journal, and so lock it") {
  const TempDir dir;
  const Umask open(0);
  const Folder folder = Folder::open(dir / "");
  const Journal journal(folder, "journal", "out");
  CHECK(mode_of(dir / "journal") == 0600);
}

TEST_CASE("a source with an access list permits nothing to its group") {
  const TempDir dir;
  const Umask open(022);
  const std::string source = source_with(dir, "in", 0644);
  const Privacy before(permitted_in(Folder::open(source)));
  CHECK(before.limit(0644, ::getegid(), false) == 0644);
  // user::rw-, user:1:r--, group::---, mask::r--, other::---
  const unsigned char list[] = {2, 0, 0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  4,
                                0, 1, 0,   0,   0,   4,   0,  0, 0,   255, 255, 255, 255, 16, 0,
                                4, 0, 255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};
  const std::string file = source + "/config.json";
  if (::setxattr(file.c_str(), "system.posix_acl_access", list, sizeof list, 0) != 0) return;  // no ACLs here
  CHECK(mode_of(file) == 0640);
  CHECK(Privacy(permitted_in(Folder::open(source))).limit(0644, ::getegid(), false) == 0600);
}
