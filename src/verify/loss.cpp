#include "src/verify/loss.h"

#include "src/packed/manifest.h"
#include "src/plan/rewrite.h"

namespace mxfp4 {

void Loss::add(const RewriteLoss& loss) {
  const std::lock_guard lock(mutex_);
  mxfp4::add(sum_, loss);
}

void Loss::compare(const ManifestSet& set, std::vector<std::pair<std::string, std::string>>& lines) const {
  for (const std::string& line : differences(set.loss, sum_)) lines.emplace_back(manifest_name, describe(set) + line);
}

}  // namespace mxfp4
