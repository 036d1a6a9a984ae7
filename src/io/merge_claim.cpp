#include "src/io/merge_claim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/threads.h"
#include "src/io/parts.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr const char* claim_name = "merging";
constexpr int most_tries = 10;  // others may end meanwhile, or their claims be seen late

/// "HOST.PROCESS"; empty where there is no claim, or it is just given back.
std::string holder_of(const std::string& path) {
  const auto names = names_in_folder(path, Unreadable::skip);
  return names.empty() ? "" : names.front();
}

/// A holder of this process's own name was one before it: of a container that was started again.
bool may_be_alive(const std::string& holder, const std::string& path) {
  const std::string self = process_name();
  const auto host = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  if (holder.empty() || holder == self) return false;
  if (host(holder) != host(self)) return is_young(path);
  return ::kill(pid_t(std::atoi(holder.c_str() + holder.rfind('.') + 1)), 0) == 0 || errno == EPERM;
}

void remove_folder(const std::string& path) try {
  remove_tree(path);
} catch (const fs::filesystem_error&) {  // what stays is known by its name, and goes with the parts
}

/// Not where it has another holder by now.
void remove_dead(const std::string& path, const std::string& holder) {
  const std::string aside = path + "." + random_digits();
  if (::rename(path.c_str(), aside.c_str()) != 0) return;
  if (holder_of(aside) == holder || ::rename(aside.c_str(), path.c_str()) != 0) remove_folder(aside);
}

}  // namespace

bool is_claim(const std::string& name) { return name.starts_with(claim_name); }

MergeClaim::MergeClaim(const std::string& parts, const std::string& out)
    : path_(parts + "/" + claim_name), holder_(process_name()) {
  check_own_parts(parts);
  const std::string fresh = path_ + "." + random_digits();
  const bool is_made = ::mkdir(fresh.c_str(), 0700) == 0;
  if (!is_made && errno == ENOENT) return;
  if (!is_made || ::mkdir((fresh + "/" + holder_).c_str(), 0700) != 0) fail_errno(fresh, "cannot create", errno);
  for (int i = 0; ::rename(fresh.c_str(), path_.c_str()) != 0; ++i) {  // nor over a folder that is not empty
    const int error = errno;
    if (error == ENOENT) return;  // merged by now
    const std::string holder = holder_of(path_);
    if (i == most_tries || may_be_alive(holder, path_)) {
      const bool is_taken = error == ENOTEMPTY || error == EEXIST || fs::exists(path_);
      remove_folder(fresh);
      if (!is_taken) fail_errno(path_, "cannot create", error);
      fail(ErrorKind::usage, "{}: is being merged or resumed by {}", out,
           holder.empty() ? "another node" : "process " + holder);
    }
    if (!holder.empty()) remove_dead(path_, holder);
  }
  held_ = true;
  try_to_start([&] { keeper_ = std::thread([this] { keep_young(); }); });
}

void MergeClaim::keep_young() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, std::chrono::minutes(1), [&] { return ended_; }))
    ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
}

MergeClaim::~MergeClaim() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  if (held_ && holder_of(path_) == holder_) remove_folder(path_);
}

}  // namespace mxfp4
