// Lets one process at a time merge an output's parts or continue a merge, also between nodes that do not see each
// other's locks.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "src/io/place.h"

namespace mxfp4 {

/// The claim is a folder among the parts, which only one process can create. It contains a folder with the holder's
/// name, and the holder touches it every minute. A dead holder's claim is taken over: at once if the process was on
/// this host, else when the claim is no longer young.
class MergeClaim {
 public:
  /// Claims the parts beside an output's place; does nothing if there are no parts. Throws Error{usage} if another
  /// process has the claim, or if the parts belong to another user. out: the output's name in messages.
  MergeClaim(const Place& place, const std::string& out);
  /// Releases the claim, if it is held and the parts still exist.
  ~MergeClaim();
  MergeClaim(const MergeClaim&) = delete;

 private:
  void keep_young();

  Folder parts_;
  std::string holder_;
  bool held_ = false, ended_ = false;
  std::mutex mutex_;
  std::condition_variable end_;
  std::thread keeper_;
};

/// Whether a process that may be alive has the claim.
bool is_claimed(const Folder& parts);
/// Whether a name in the folder of parts is a claim, or the rest of a removed claim.
bool is_claim(const Folder& parts, const std::string& name);

}  // namespace mxfp4
