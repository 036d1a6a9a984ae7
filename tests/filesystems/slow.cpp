// A mirror of a folder that behaves like a remote file system: requests of at most 128 KiB, each with a delay, any
// number at once.
// usage: slow FOLDER MOUNTPOINT MICROSECONDS [direct] [keep]
// direct: O_DIRECT is supported. keep: a file's pages stay in the page cache when it is opened again, unless it
// changed.
#include <chrono>
#include <thread>

#include "mirror.h"

namespace {

constexpr unsigned most_bytes = 128 << 10;

std::chrono::microseconds delay;
bool direct = false;

int open_here(const char* path, int flags, mode_t mode, fuse_file_info* info) {
  if ((info->flags & O_DIRECT) && !direct) return -EINVAL;
  return open_behind(path, flags & ~O_DIRECT, mode, info);
}

int read_part(const char* path, char* to, size_t bytes, off_t offset, fuse_file_info* info) {
  std::this_thread::sleep_for(delay);
  return read_behind(path, to, bytes, offset, info);
}
int write_part(const char* path, const char* from, size_t bytes, off_t offset, fuse_file_info* info) {
  std::this_thread::sleep_for(delay);
  return write_behind(path, from, bytes, offset, info);
}

void* set_up(fuse_conn_info* connection, fuse_config*) {
  connection->max_read = connection->max_write = connection->max_readahead = most_bytes;
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: slow FOLDER MOUNTPOINT MICROSECONDS [direct] [keep]\n"), 2;
  delay = std::chrono::microseconds(std::stol(argv[3]));
  std::string options = "max_read=131072,default_permissions";
  for (int i = 4; i < argc; ++i) {
    if (argv[i] == std::string("direct")) direct = true;
    if (argv[i] == std::string("keep")) options += ",auto_cache";
  }
  open_as = open_here;
  fuse_operations o = mirror_operations();
  o.init = set_up;
  o.read = read_part;
  o.write = write_part;
  return mount_mirror(argv[0], argv[1], argv[2], o, options);
}
