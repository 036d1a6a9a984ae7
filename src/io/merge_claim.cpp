#include "src/io/merge_claim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <regex>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/threads.h"
#include "src/io/parts.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr const char* claim_name = "merging";
constexpr int most_tries = 10;  // another holder may end, or its claim appear late

/// A new name beside the claim.
std::string fresh_claim() { return fmt::format("{}.{}", claim_name, random_digits()); }

/// "HOST.PROCESS"; empty if there is no claim, or if its holder is releasing it.
std::string holder_of(const Folder& parts, const std::string& claim) {
  const Folder folder = parts.find(claim);
  const auto names = folder ? names_in_folder(folder, Unreadable::skip) : std::vector<std::string>();
  return names.empty() ? "" : names.front();
}

/// Whether a claim's holder may still run. A holder with this process's name is dead: it ran in a container that was
/// started again.
bool may_be_alive(const std::string& holder, const Folder& parts) {
  if (holder.empty() || holder == process_name()) return false;
  const std::optional<bool> known = runs(holder);
  return known ? *known : is_young(parts, parts, claim_name);
}

/// Removes only a claim's empty folders: a folder that somebody moved to this name keeps its contents.
void remove_folder(const Folder& parts, const std::string& name) {
  const Folder claim = parts.find(name);
  if (claim)
    for (const std::string& holder : names_in_folder(claim, Unreadable::skip)) claim.rmdir(holder);
  parts.rmdir(name);
}

/// Removes the claim, unless another process has taken it.
void remove_dead(const Folder& parts, const std::string& holder) {
  const std::string aside = fresh_claim();
  if (parts.rename(claim_name, parts, aside) != 0) return;
  if (holder_of(parts, aside) == holder || parts.rename(aside, parts, claim_name) != 0) remove_folder(parts, aside);
}

/// Creates a claim's folder under the name `fresh`, with the holder's folder in it. False if the parts are gone.
bool make_claim(const Folder& parts, const std::string& fresh, const std::string& holder) try {
  parts.make(fresh).make(holder);
  return true;
} catch (const Error&) {
  if (parts.stat().st_nlink == 0) return false;
  throw;
}

/// Whether a folder holds no more than a claim does: the empty folder of its holder.
bool looks_like_claim(const Folder& folder) {
  static const std::regex holder("[A-Za-z0-9_-]+\\.[0-9]+");
  const std::vector<Entry> entries = entries_below(folder, Unreadable::skip);
  return folder.is_own() && entries.size() <= 1 && std::all_of(entries.begin(), entries.end(), [](const Entry& e) {
           return e.is_folder() && std::regex_match(e.name, holder);
         });
}

bool is_strange(const HeldFolder& claim) { return claim ? !looks_like_claim(claim.folder) : claim.is_taken(); }

}  // namespace

bool is_claimed(const Folder& parts) {
  return parts.has(claim_name) && may_be_alive(holder_of(parts, claim_name), parts);
}

bool is_claim(const Folder& parts, const std::string& name) {
  static const std::regex pattern(std::string(claim_name) + "(\\.[0-9a-f]{16})?");
  const Folder claim = std::regex_match(name, pattern) ? parts.find(name) : Folder();
  return claim && looks_like_claim(claim);
}

MergeClaim::MergeClaim(const Place& place, const std::string& out) : holder_(process_name()) {
  HeldFolder parts = parts_beside(place);
  check_own_parts(parts);
  if (!parts) return;
  parts_ = std::move(parts.folder);
  const std::string fresh = fresh_claim();
  if (!make_claim(parts_, fresh, holder_)) return;
  int error;
  for (int i = 0; (error = parts_.rename(fresh, parts_, claim_name)) != 0;
       ++i) {                     // fails over a folder that is not empty
    if (error == ENOENT) return;  // another process has merged the parts
    if (is_strange({parts_, claim_name})) {
      remove_folder(parts_, fresh);
      fail(ErrorKind::usage, "{}: was not made by mxfp4-pack; move it away", parts_.path(claim_name));
    }
    const std::string holder = holder_of(parts_, claim_name);
    if (i == most_tries || may_be_alive(holder, parts_)) {
      const bool is_taken = error == ENOTEMPTY || error == EEXIST || parts_.has(claim_name);
      remove_folder(parts_, fresh);
      if (!is_taken) fail_errno(parts_.path(claim_name), "cannot create", error);
      fail(ErrorKind::usage, "{}: is being merged or continued by {}", out,
           holder.empty() ? "another node" : "process " + holder);
    }
    if (!holder.empty()) remove_dead(parts_, holder);
  }
  held_ = true;
  try_to_start([&] { keeper_ = std::thread([this] { keep_young(); }); });
}

void MergeClaim::keep_young() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, std::chrono::minutes(1), [&] { return ended_; })) parts_.touch(claim_name);
}

MergeClaim::~MergeClaim() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  if (held_ && holder_of(parts_, claim_name) == holder_) remove_folder(parts_, claim_name);
}

}  // namespace mxfp4
