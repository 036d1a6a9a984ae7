// Where an output may stand, and who may read it there.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

namespace mxfp4 {

/// Throws Error{usage} where OUT is a link: a rename would replace the link, not what it leads to.
void refuse_link(const std::string& out);

/// Where OUT is to stand: absolute, without links. Throws Error{usage} where OUT is `source` (may be empty), lies
/// inside it or holds it, is a link, or has something mounted on it or in it, which no rename could replace.
std::string place_of(const std::string& out, const std::string& source);

/// Throws Error{io} where the file system of a folder has no space for so many bytes beside those that the folders
/// `spare` have already, in files that have no second name.
void check_space(const std::string& folder, int64_t bytes, const std::vector<std::string>& spare);

/// What is mounted on a path or below it; empty where nothing is, or the system does not list its mounts.
std::string mounted_in(const std::string& path);

/// What a folder and all files in it permit to group and others, as the bits of a umask that forbids the rest.
mode_t umask_like(const std::string& dir);

/// Adds bits to the umask of the process for the life of this object.
class NarrowedUmask {
 public:
  explicit NarrowedUmask(mode_t bits) : before_(::umask(077)) { ::umask(before_ | bits); }
  ~NarrowedUmask() { ::umask(before_); }
  NarrowedUmask(const NarrowedUmask&) = delete;

 private:
  mode_t before_;
};

}  // namespace mxfp4
