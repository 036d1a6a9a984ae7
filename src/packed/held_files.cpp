#include "src/packed/held_files.h"

#include <sys/resource.h>

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

namespace {

/// Whether the path still leads to the opened file or directory, or to nothing if nothing was opened.
bool leads_to(const std::string& path, const auto& held) {
  struct stat now;
  if (::stat(path.c_str(), &now) != 0) return !held;
  if (!held) return !S_ISDIR(now.st_mode);  // a file cannot be an OUT that replaced another
  return identity_of(now) == identity_of(held.stat());
}

size_t most_held() {
  rlimit limit;
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? size_t(limit.rlim_cur / 4) : 64;
}

}  // namespace

HeldFiles::HeldFiles(Folder out) : out_(out.lasting_path()), source_(std::make_shared<SourceFolder>(std::move(out))) {}

HeldFiles::HeldFiles(const std::string& out) : out_(out), source_(std::make_shared<SourceFolder>(out)) {}

void HeldFiles::hold(const std::string& name) {
  Held& held = held_[name];
  if (held.fd) return;
  Fd file = source_->open(name, held.problems);
  if (file && held_.size() < most_held()) held.fd = std::move(file);
}

std::string HeldFiles::path(const std::string& name, Problems& problems) const {
  const auto held = held_.find(name);
  if (held == held_.end()) return problems.error(name, "not listed in the manifest"), std::string();
  if (held->second.fd) return held->second.fd.proc_path();
  if (!held->second.problems.any()) return source_->path(name);
  problems.add(held->second.problems);
  return {};
}

void HeldFiles::throw_if_replaced(const std::string& name) const {
  const auto held = held_.find(name);
  const bool has_file = held != held_.end() && held->second.fd;
  const bool same = leads_to(out_, folder()) && (!has_file || leads_to(out_ + "/" + name, held->second.fd));
  if (!same) fail(ErrorKind::io, "{}: was replaced while it was read; run it again", printable(out_));
}

}  // namespace mxfp4
