// Only regular files are opened, up to the caller's limit of bytes.
#include "src/base/file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "src/base/error.h"
#include "tests/support/said.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;
namespace fs = std::filesystem;

namespace {

void make_socket(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(fd);
}

}  // namespace

TEST_CASE("what is no regular file is not opened to be read") {
  const TempDir dir;
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0666) == 0);
  make_socket(dir / "socket");
  fs::create_directory(dir / "folder");
  fs::create_symlink("/dev/zero", dir / "device");
  fs::create_symlink("fifo", dir / "link");
  for (const std::string name : {"fifo", "socket", "folder", "device", "link"}) {
    CHECK(said_by([&] { open_read(dir / name, name); }) == name + ": not a regular file");
    CHECK(said_by([&] { read_text(dir / name, 1 << 20, name); }) == name + ": not a regular file");
  }
  CHECK(said_by([&] { open_read(dir / "none", "none"); }) == "none: cannot open: No such file or directory");
}

TEST_CASE("a text is read up to its limit") {
  const TempDir dir;
  const std::string path = dir / "text";
  write_text(path, "12345");
  CHECK(read_text(path, 5) == "12345");
  CHECK(said_by([&] { read_text(path, 4, "text"); }) == "text: 5 bytes, at most 4 expected");
  fs::resize_file(path, uintmax_t(1) << 40);
  CHECK(said_by([&] { read_text(path, 1 << 20, "text"); }) == "text: 1099511627776 bytes, at most 1048576 expected");
  CHECK(read_text("/proc/self/mem", 1 << 20).empty());  // its size is 0
}
