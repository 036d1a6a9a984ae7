#include "src/checkpoint/real_path.h"

#include <unistd.h>

#include "src/base/error.h"
#include "src/base/file.h"

namespace mxfp4 {

namespace fs = std::filesystem;

fs::path resolve(const fs::path& path) {
  std::error_code ec;
  const fs::path resolved = fs::canonical(path, ec);
  const int e = ec.value();
  if (e != 0 && e != ENOENT && e != ELOOP && e != EACCES) fail_errno(path.string(), "cannot resolve", e);
  return ec ? fs::path() : resolved;
}

namespace {

/// Of a blob in the Hugging Face cache: a hash, which files of others are not called.
bool is_blob_name(const std::string& name) {
  return (name.size() == 40 || name.size() == 64) && name.find_first_not_of("0123456789abcdef") == name.npos;
}

}  // namespace

bool may_follow(const fs::path& resolved, const fs::path& dir, Links links) {
  if (links == Links::follow || is_below(resolved, dir)) return true;
  const fs::path snapshots = dir.parent_path();
  if (snapshots.filename() != "snapshots") return false;
  const fs::path name = snapshots.parent_path() / "blobs", blobs = resolve(name);
  if (blobs.empty() || !is_below(resolved, blobs)) return false;
  return !fs::is_symlink(fs::symlink_status(name)) || is_blob_name(resolved.filename().string());  // on another disk
}

std::string real_path(const std::string& dir, const std::string& name, Problems& problems, Links links) {
  const fs::path path = fs::path(dir) / name;
  const fs::path resolved = resolve(path);
  const int reason = resolved.empty() && ::euidaccess(path.c_str(), F_OK) != 0 ? errno : 0;
  if (reason == ELOOP)
    problems.error(name, "a link that leads to itself; remove it");
  else if (reason == EACCES)
    problems.error(name, "cannot be read: {}", std::generic_category().message(reason));
  else if (resolved.empty() && fs::is_symlink(fs::symlink_status(path)))
    problems.error(name, "broken link to {}; incomplete copy?", fs::read_symlink(path).string());
  else if (resolved.empty())
    problems.error(name, "missing; incomplete copy?");
  else if (!may_follow(resolved, fs::canonical(dir), links))
    problems.error(name, "links outside the directory, to {}{}", resolved.string(),
                   links == Links::offer ? "; give --follow-links to read it" : "");
  else if (!fs::is_regular_file(resolved))
    problems.error(name, "not a regular file");
  else
    return resolved.string();
  return {};
}

std::string small_text(const std::string& dir, const std::string& name, int64_t limit, Problems& problems,
                       Links links) {
  const std::string path = real_path(dir, name, problems, links);
  return path.empty() ? "" : read_text(path, limit, name);
}

}  // namespace mxfp4
