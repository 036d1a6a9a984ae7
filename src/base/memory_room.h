// How much more memory this process can use, as far as Linux tells.
#pragma once

#include <cstdint>
#include <string>

namespace mxfp4 {

/// Bytes of memory that are free or hold cached pages of files: the least that the machine and this process's memory
/// cgroups (versions 1 and 2) allow. A cgroup is limited by those above it. INT64_MAX if nothing tells.
/// root: the folder in which /proc and the cgroups' mounts are looked for.
int64_t memory_room(const std::string& root = {});

}  // namespace mxfp4
