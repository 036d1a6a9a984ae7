// What a lossy backend's experts lose when the source is packed again, beside what the manifest says of it.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "src/packed/manifest.h"
#include "src/plan/rewrite.h"

namespace mxfp4 {

/// To be added to by several threads.
class Loss {
 public:
  void add(const RewriteLoss& loss) {
    const std::lock_guard lock(mutex_);
    mxfp4::add(sum_, loss);
  }

  /// Appends a line for each count that the manifest has otherwise: where, and what.
  void compare(const ManifestSet& set, std::vector<std::pair<std::string, std::string>>& lines) const {
    for (const std::string& line : differences(set.loss, sum_)) lines.emplace_back(manifest_name, describe(set) + line);
  }

 private:
  std::mutex mutex_;
  RewriteLoss sum_;
};

}  // namespace mxfp4
