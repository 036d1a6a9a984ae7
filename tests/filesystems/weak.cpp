// A file system that promises little, as a mirror of a folder. usage: weak FOLDER MOUNTPOINT
// No O_DIRECT, no flags of renameat2, ENOLCK for locks, no links, no clones, no space reserved ahead; reads and writes
// that move only a part; names and attributes that another mount of FOLDER changes are seen seconds late.
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

namespace {

constexpr size_t most_read = 100'000, most_write = 128 << 10;
constexpr double late_seconds = 3;

std::string folder;

std::string behind(const char* path) { return folder + path; }
int result(long r) { return r < 0 ? -errno : int(r); }

int get_attributes(const char* path, struct stat* s, fuse_file_info*) {
  return result(::lstat(behind(path).c_str(), s));
}

int open_file(const char* path, fuse_file_info* info) {
  if (info->flags & O_DIRECT) return -EINVAL;
  const int fd = ::open(behind(path).c_str(), info->flags, 0666);
  if (fd < 0) return -errno;
  info->fh = uint64_t(fd);
  info->direct_io = 1;  // else the kernel would ask again for what a read did not give
  return 0;
}

int create_file(const char* path, mode_t mode, fuse_file_info* info) {
  if (info->flags & O_DIRECT) return -EINVAL;
  const int fd = ::open(behind(path).c_str(), info->flags | O_CREAT, mode);
  if (fd < 0) return -errno;
  info->fh = uint64_t(fd);
  info->direct_io = 1;
  return 0;
}

int read_part(const char*, char* to, size_t bytes, off_t offset, fuse_file_info* info) {
  return result(::pread(int(info->fh), to, std::min(bytes, most_read), offset));
}

int write_part(const char*, const char* from, size_t bytes, off_t offset, fuse_file_info* info) {
  const size_t part = bytes > 4096 ? bytes - bytes / 4 : bytes;
  return result(::pwrite(int(info->fh), from, part, offset));
}

int list_folder(const char* path, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(behind(path).c_str()), ::closedir);
  if (!dir) return -errno;
  while (const dirent* entry = ::readdir(dir.get())) fill(to, entry->d_name, nullptr, 0, fuse_fill_dir_flags(0));
  return 0;
}

int rename_path(const char* from, const char* to, unsigned flags) {
  return flags ? -EINVAL : result(::rename(behind(from).c_str(), behind(to).c_str()));
}

int truncate_file(const char* path, off_t bytes, fuse_file_info*) {
  return result(::truncate(behind(path).c_str(), bytes));
}

int set_times(const char* path, const timespec times[2], fuse_file_info*) {
  return result(::utimensat(AT_FDCWD, behind(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}

void* set_up(fuse_conn_info* connection, fuse_config* config) {
  connection->max_write = most_write;
  config->use_ino = 1;
  config->entry_timeout = config->attr_timeout = config->negative_timeout = late_seconds;
  return nullptr;
}

fuse_operations operations() {
  fuse_operations o{};
  o.init = set_up;
  o.getattr = get_attributes;
  o.open = open_file;
  o.create = create_file;
  o.read = read_part;
  o.write = write_part;
  o.readdir = list_folder;
  o.rename = rename_path;
  o.truncate = truncate_file;
  o.utimens = set_times;
  o.flock = [](const char*, fuse_file_info*, int) { return -ENOLCK; };
  o.lock = [](const char*, fuse_file_info*, int, struct flock*) { return -ENOLCK; };
  o.release = [](const char*, fuse_file_info* info) { return result(::close(int(info->fh))); };
  o.fsync = [](const char*, int, fuse_file_info* info) { return result(::fsync(int(info->fh))); };
  o.mkdir = [](const char* path, mode_t mode) { return result(::mkdir(behind(path).c_str(), mode)); };
  o.unlink = [](const char* path) { return result(::unlink(behind(path).c_str())); };
  o.rmdir = [](const char* path) { return result(::rmdir(behind(path).c_str())); };
  o.chmod = [](const char* path, mode_t mode, fuse_file_info*) { return result(::chmod(behind(path).c_str(), mode)); };
  o.statfs = [](const char*, struct statvfs* s) { return result(::statvfs(folder.c_str(), s)); };
  return o;
}

}  // namespace

int main(int, char** argv) {
  if (!argv[1] || !argv[2]) return std::fprintf(stderr, "usage: weak FOLDER MOUNTPOINT\n"), 2;
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(argv[1], nullptr), ::free);
  if (!real) return std::perror(argv[1]), 1;
  folder = real.get();
  const fuse_operations o = operations();
  char* arguments[] = {argv[0], argv[2], nullptr};
  return ::fuse_main(2, arguments, &o, nullptr);
}
