// What a lossy backend's experts lose when the source is packed again, beside what the manifest says of it.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/pack/humming.h"

namespace mxfp4 {

struct ManifestSet;

/// To be added to by several threads.
class Loss {
 public:
  void add(const RewriteLoss& loss);

  /// Appends a line for each count that the manifest has otherwise: where, and what.
  void compare(const ManifestSet& set, std::vector<std::pair<std::string, std::string>>& lines) const;

 private:
  std::mutex mutex_;
  RewriteLoss sum_;
};

}  // namespace mxfp4
