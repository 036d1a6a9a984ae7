// Where an output may stand.
#pragma once

#include <string>
#include <vector>

#include "src/base/folder.h"

namespace mxfp4 {

/// Where an output stands or is to stand: a name in a folder that is held.
struct Place {
  Folder above;
  std::string name;

  /// Absolute, without links.
  std::string path() const { return above.path(name); }
};

/// Throws Error{usage} if OUT is a link: a rename would replace the link, not what it leads to.
void refuse_link(const std::string& out);

/// Where OUT is to stand. Throws Error{usage} if OUT is `source` (may be empty), lies inside it or holds it, also by a
/// bind mount; if it is a link; if something is mounted on it or in it, which no rename could replace; and if its name
/// is too long for the hidden names beside it.
Place place_of(const std::string& out, const std::string& source);

/// Throws Error{io} unless the file system of a folder has space for so many bytes, beside those that the folders
/// `spare` in it already have in files that have no second name.
void check_space(const Folder& folder, int64_t bytes, const std::vector<std::string>& spare);

/// What is mounted on a path or below it; empty if nothing is, or the system does not list its mounts.
std::string mounted_in(const std::string& path);

}  // namespace mxfp4
