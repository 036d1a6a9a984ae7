// A mirror of a folder with two habits of file systems that programs overlook.
// usage: odd FOLDER MOUNTPOINT
// Like on vfat, names that differ in case only are one file, under the first name.
// NFS's: while FOLDER/full is there, writes seem to succeed and are lost. The next fsync of the file, in whatever
// process, says ENOSPC, once.
#include <strings.h>

#include <filesystem>
#include <mutex>
#include <set>

#include "mirror.h"

namespace {

std::mutex owed_mutex;
std::set<std::string> owed;  // files whose next fsync fails

std::string kept_name(const std::string& within, const std::string& name) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(within, none))
    if (const std::string there = entry.path().filename(); ::strcasecmp(there.c_str(), name.c_str()) == 0) return there;
  return name;
}

/// The path in the folder of `path`, each name in the folder's spelling.
std::string fold(const char* path) {
  std::string at = folder;
  for (const auto& part : std::filesystem::path(path).relative_path()) at += "/" + kept_name(at, part);
  return at;
}

int write_file(const char* path, const char* from, size_t bytes, off_t offset, fuse_file_info* info) {
  if (::access((folder + "/full").c_str(), F_OK) != 0) return write_behind(path, from, bytes, offset, info);
  const std::lock_guard lock(owed_mutex);
  owed.insert(behind(path));
  return int(bytes);
}

int remove_file(const char* path) {
  const std::lock_guard lock(owed_mutex);
  owed.erase(behind(path));
  return result(::unlink(behind(path).c_str()));
}

int sync_file(const char* path, int, fuse_file_info* info) {
  const std::lock_guard lock(owed_mutex);
  return owed.erase(behind(path)) ? -ENOSPC : result(::fsync(int(info->fh)));
}

void* set_up(fuse_conn_info*, fuse_config* config) {
  config->use_ino = 1;
  return nullptr;
}

}  // namespace

int main(int, char** argv) {
  if (!argv[1] || !argv[2]) return std::fprintf(stderr, "usage: odd FOLDER MOUNTPOINT\n"), 2;
  where = fold;
  fuse_operations o = mirror_operations();
  o.init = set_up;
  o.write = write_file;
  o.fsync = sync_file;
  o.unlink = remove_file;
  return mount_mirror(argv[0], argv[1], argv[2], o, "rw");
}
