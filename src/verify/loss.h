// The loss of a lossy backend's experts if the source is packed again, compared with the loss in the manifest.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/pack/humming.h"

namespace mxfp4 {

struct ManifestSet;

/// Several threads may add to it.
class Loss {
 public:
  void add(const RewriteLoss& loss);

  /// Appends a line, with its place, for each count that differs from the manifest's.
  void compare(const ManifestSet& set, std::vector<std::pair<std::string, std::string>>& lines) const;

 private:
  std::mutex mutex_;
  RewriteLoss sum_;
};

}  // namespace mxfp4
