// A mirror of a folder with few guarantees.
// usage: weak FOLDER MOUNTPOINT
// No O_DIRECT, no flags of renameat2, ENOLCK for locks, no links, no clones, no space reserved ahead. Reads and writes
// move only a part. Changes of names and attributes by another mount of FOLDER are visible seconds later.
#include <algorithm>

#include "mirror.h"

namespace {

// If the kernel reads for its page cache, for a mapping or posix_fadvise(), it treats a short read as the end of the
// file. Therefore only requests larger than these are answered in part.
constexpr unsigned most_ahead = 128 << 10, most_asked = 1 << 20;
constexpr size_t most_read = 150'000;
static_assert(most_read >= most_ahead);
constexpr double late_seconds = 3;

int open_here(const char* path, int flags, mode_t mode, fuse_file_info* info) {
  if (info->flags & O_DIRECT) return -EINVAL;
  info->direct_io = 1;  // else the kernel would ask again for what a read did not give
  return open_behind(path, flags, mode, info);
}

int read_part(const char* path, char* to, size_t bytes, off_t offset, fuse_file_info* info) {
  return read_behind(path, to, std::min(bytes, most_read), offset, info);
}

int write_part(const char* path, const char* from, size_t bytes, off_t offset, fuse_file_info* info) {
  const size_t part = bytes > 4096 ? bytes - bytes / 4 : bytes;
  return write_behind(path, from, part, offset, info);
}

void* set_up(fuse_conn_info* connection, fuse_config* config) {
  connection->max_readahead = most_ahead;
  connection->max_write = most_asked;  // and most that is read at once
  config->use_ino = 1;
  config->entry_timeout = config->attr_timeout = config->negative_timeout = late_seconds;
  return nullptr;
}

}  // namespace

int main(int, char** argv) {
  if (!argv[1] || !argv[2]) return std::fprintf(stderr, "usage: weak FOLDER MOUNTPOINT\n"), 2;
  open_as = open_here;
  fuse_operations o = mirror_operations();
  o.init = set_up;
  o.read = read_part;
  o.write = write_part;
  o.flock = [](const char*, fuse_file_info*, int) { return -ENOLCK; };
  o.lock = [](const char*, fuse_file_info*, int, struct flock*) { return -ENOLCK; };
  return mount_mirror(argv[0], argv[1], argv[2], o, "rw");
}
