// The places in which an output may be made.
#pragma once

#include <string>
#include <vector>

#include "src/base/folder.h"

namespace mxfp4 {

/// An output's place: a name in a folder that is held.
struct Place {
  Folder above;
  std::string name;

  /// Absolute, without links.
  std::string path() const { return above.path(name); }
  /// The same under a second descriptor.
  Place again() const { return {above.again(), name}; }
  /// What is there; holds nothing if that is no folder.
  Folder folder() const { return above.find(name); }
};

/// Throws Error{usage} if OUT is a link: a rename would replace the link, not what it leads to.
void refuse_link(const std::string& out);

/// The place of OUT, which is looked up once in a run. Throws Error{usage} in these cases:
/// - OUT is a link.
/// - Something is mounted on OUT or in it, which no rename could replace.
/// - The name is too long for the hidden names beside it.
Place place_of(const std::string& out);
/// The same. Throws Error{usage} also as check_apart().
Place place_of(const std::string& out, const std::string& source);

/// Throws Error{usage} if OUT is `source`, lies inside it or contains it, also by a bind mount.
void check_apart(const std::string& out, const Place& place, const std::string& source);

/// Throws Error{io} unless the file system of a folder has space for `bytes` bytes. Files with one name in the folders
/// `spare` count as free space.
void check_space(const Folder& folder, int64_t bytes, const std::vector<std::string>& spare);

/// What is mounted on a path or below it; empty if nothing is, or the system does not list its mounts.
std::string mounted_in(const std::string& path);

}  // namespace mxfp4
