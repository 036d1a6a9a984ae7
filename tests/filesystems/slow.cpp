// A file system that is far away, as a mirror of a folder: requests of 128 KiB at most, each of which takes so long,
// any number at once. usage: slow FOLDER MOUNTPOINT MICROSECONDS [direct]. direct: O_DIRECT is taken.
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

namespace {

constexpr unsigned most_bytes = 128 << 10;

std::string folder;
std::chrono::microseconds delay;
bool direct = false;

std::string behind(const char* path) { return folder + path; }
int result(long r) { return r < 0 ? -errno : int(r); }

int get_attributes(const char* path, struct stat* s, fuse_file_info*) {
  return result(::lstat(behind(path).c_str(), s));
}

int open_behind(const char* path, int flags, mode_t mode, fuse_file_info* info) {
  if ((info->flags & O_DIRECT) && !direct) return -EINVAL;
  const int fd = ::open(behind(path).c_str(), flags & ~O_DIRECT, mode);
  if (fd < 0) return -errno;
  info->fh = uint64_t(fd);
  return 0;
}
int open_file(const char* path, fuse_file_info* info) { return open_behind(path, info->flags, 0, info); }
int create_file(const char* path, mode_t mode, fuse_file_info* info) {
  return open_behind(path, info->flags | O_CREAT, mode, info);
}

int read_part(const char*, char* to, size_t bytes, off_t offset, fuse_file_info* info) {
  std::this_thread::sleep_for(delay);
  return result(::pread(int(info->fh), to, bytes, offset));
}
int write_part(const char*, const char* from, size_t bytes, off_t offset, fuse_file_info* info) {
  std::this_thread::sleep_for(delay);
  return result(::pwrite(int(info->fh), from, bytes, offset));
}

int list_folder(const char* path, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(behind(path).c_str()), ::closedir);
  if (!dir) return -errno;
  while (const dirent* entry = ::readdir(dir.get())) fill(to, entry->d_name, nullptr, 0, fuse_fill_dir_flags(0));
  return 0;
}

int set_size(const char* path, off_t bytes, fuse_file_info* info) {
  return result(info ? ::ftruncate(int(info->fh), bytes) : ::truncate(behind(path).c_str(), bytes));
}
int rename_without_flags(const char* from, const char* to, unsigned flags) {
  return flags ? -EINVAL : result(::rename(behind(from).c_str(), behind(to).c_str()));
}

void* begin(fuse_conn_info* connection, fuse_config*) {
  connection->max_read = connection->max_write = connection->max_readahead = most_bytes;
  return nullptr;
}

fuse_operations operations() {
  fuse_operations o = {};
  o.init = begin;
  o.getattr = get_attributes;
  o.open = open_file;
  o.create = create_file;
  o.read = read_part;
  o.write = write_part;
  o.readdir = list_folder;
  o.truncate = set_size;
  o.rename = rename_without_flags;
  o.mkdir = [](const char* path, mode_t mode) { return result(::mkdir(behind(path).c_str(), mode)); };
  o.unlink = [](const char* path) { return result(::unlink(behind(path).c_str())); };
  o.rmdir = [](const char* path) { return result(::rmdir(behind(path).c_str())); };
  o.statfs = [](const char* path, struct statvfs* s) { return result(::statvfs(behind(path).c_str(), s)); };
  o.release = [](const char*, fuse_file_info* info) { return result(::close(int(info->fh))); };
  o.fsync = [](const char*, int, fuse_file_info* info) { return result(::fsync(int(info->fh))); };
  o.fsyncdir = [](const char*, int, fuse_file_info*) { return 0; };
  o.chmod = [](const char* path, mode_t mode, fuse_file_info*) { return result(::chmod(behind(path).c_str(), mode)); };
  o.utimens = [](const char* path, const timespec t[2], fuse_file_info*) {
    return result(::utimensat(AT_FDCWD, behind(path).c_str(), t, 0));
  };
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: slow FOLDER MOUNTPOINT MICROSECONDS [direct]\n", stderr);
    return 2;
  }
  folder = std::filesystem::absolute(argv[1]).string();
  delay = std::chrono::microseconds(std::stol(argv[3]));
  direct = argc > 4;
  char option[] = "-o", size[] = "max_read=131072,default_permissions";
  char* arguments[] = {argv[0], argv[2], option, size};
  const fuse_operations o = operations();
  return fuse_main(4, arguments, &o, nullptr);
}
