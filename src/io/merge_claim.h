// One merge of an output's parts, or run that goes on with them, at a time, also where nodes see no locks of one
// another.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "src/io/place.h"

namespace mxfp4 {

/// Held by a folder among the parts that only one process can put there. It has a folder of the holder's name, and the
/// holder touches it every minute. What a dead holder leaves is taken over: of a process of this host at once, of
/// others when it is no longer young.
class MergeClaim {
 public:
  /// Claims the parts beside an output's place; nothing if there are none. Throws Error{usage} if another process has
  /// the claim, or the parts are not this user's. out: what messages call the output.
  MergeClaim(const Place& place, const std::string& out);
  /// Gives the claim back, if it is held and the parts are still there.
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
/// Whether a name in the folder of parts is a claim, or what is left of one.
bool is_claim(const Folder& parts, const std::string& name);

}  // namespace mxfp4
