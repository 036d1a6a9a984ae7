// A mirror of a folder through FUSE, the common part of the tests' file systems.
#pragma once

#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

inline std::string folder;  // that is seen, absolute

/// The path in the folder of a path in the mount.
inline std::string (*where)(const char* path) = [](const char* path) { return folder + path; };
inline std::string behind(const char* path) { return where(path); }
inline int result(long r) { return r < 0 ? -errno : int(r); }

inline int list_folder(const char* path, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(behind(path).c_str()), ::closedir);
  if (!dir) return -errno;
  while (const dirent* entry = ::readdir(dir.get())) fill(to, entry->d_name, nullptr, 0, fuse_fill_dir_flags(0));
  return 0;
}

/// Opens a file of the folder, or creates it with O_CREAT in `flags`.
inline int open_behind(const char* path, int flags, mode_t mode, fuse_file_info* info) {
  const int fd = ::open(behind(path).c_str(), flags, mode);
  if (fd < 0) return -errno;
  info->fh = uint64_t(fd);
  return 0;
}

/// How a file is opened, or created; a file system may refuse some of that.
inline int (*open_as)(const char* path, int flags, mode_t mode, fuse_file_info* info) = open_behind;

inline int read_behind(const char*, char* to, size_t bytes, off_t offset, fuse_file_info* info) {
  return result(::pread(int(info->fh), to, bytes, offset));
}
inline int write_behind(const char*, const char* from, size_t bytes, off_t offset, fuse_file_info* info) {
  return result(::pwrite(int(info->fh), from, bytes, offset));
}

/// All but `init`. No flags of renameat2, no links, no space reserved ahead.
inline fuse_operations mirror_operations() {
  fuse_operations o{};
  o.getattr = [](const char* path, struct stat* s, fuse_file_info*) {
    return result(::lstat(behind(path).c_str(), s));
  };
  o.readdir = list_folder;
  o.rename = [](const char* from, const char* to, unsigned flags) {
    return flags ? -EINVAL : result(::rename(behind(from).c_str(), behind(to).c_str()));
  };
  o.truncate = [](const char* path, off_t bytes, fuse_file_info*) {
    return result(::truncate(behind(path).c_str(), bytes));
  };
  o.utimens = [](const char* path, const timespec times[2], fuse_file_info*) {
    return result(::utimensat(AT_FDCWD, behind(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
  };
  o.open = [](const char* path, fuse_file_info* info) { return open_as(path, info->flags, 0666, info); };
  o.create = [](const char* path, mode_t mode, fuse_file_info* info) {
    return open_as(path, info->flags | O_CREAT, mode, info);
  };
  o.read = read_behind;
  o.write = write_behind;
  o.release = [](const char*, fuse_file_info* info) { return result(::close(int(info->fh))); };
  o.fsync = [](const char*, int, fuse_file_info* info) { return result(::fsync(int(info->fh))); };
  o.mkdir = [](const char* path, mode_t mode) { return result(::mkdir(behind(path).c_str(), mode)); };
  o.unlink = [](const char* path) { return result(::unlink(behind(path).c_str())); };
  o.rmdir = [](const char* path) { return result(::rmdir(behind(path).c_str())); };
  o.chmod = [](const char* path, mode_t mode, fuse_file_info*) { return result(::chmod(behind(path).c_str(), mode)); };
  o.statfs = [](const char*, struct statvfs* s) { return result(::statvfs(folder.c_str(), s)); };
  return o;
}

/// Mounts `from` at `mountpoint`; the program goes on in the background. options: as after mount's -o.
inline int mount_mirror(char* program, const char* from, char* mountpoint, const fuse_operations& o,
                        std::string options) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(from, nullptr), ::free);
  if (!real) return std::perror(from), 1;
  folder = real.get();
  char option[] = "-o";
  char* arguments[] = {program, mountpoint, option, options.data(), nullptr};
  return ::fuse_main(4, arguments, &o, nullptr);
}
