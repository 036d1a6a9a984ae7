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
  /// A copy with a second descriptor.
  Place again() const { return {above.again(), name}; }
  /// The folder at this place; holds nothing if there is no folder.
  Folder folder() const { return above.find(name); }
};

/// Throws Error{usage} if OUT is a link: a rename would replace the link, not its target.
void refuse_link(const std::string& out);

/// The place of OUT, which is looked up once in a run. Throws Error{usage} in these cases:
/// - OUT is a link or a file.
/// - Something is mounted on OUT or in it, which no rename could replace.
/// - The name is too long for the hidden names beside it.
Place place_of(const std::string& out);
/// The place of OUT; also calls check_apart().
Place place_of(const std::string& out, const std::string& source);

/// Throws Error{usage} if OUT is `source`, lies inside it or contains it, also by a bind mount.
void check_apart(const std::string& out, const Place& place, const std::string& source);

/// Throws Error{io} unless the file system of a folder has space for `bytes` bytes. Files in the folders `spare` count
/// as free space, unless they have other hard links.
void check_space(const Folder& folder, int64_t bytes, const std::vector<std::string>& spare);

/// Throws Error{usage} if OUT is a mount point or contains one. If the system does not list its mounts, the final
/// rename fails instead.
void check_not_mounted(const std::string& out, const Place& place);

/// Whether OUT can be replaced: its file system can be written, and OUT is no mount point.
bool can_replace(const Place& place);

/// The mount point on a path or below it; empty if there is none, or if the system does not list its mounts.
std::string mounted_in(const std::string& path);

}  // namespace mxfp4
