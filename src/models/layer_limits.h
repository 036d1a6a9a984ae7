// Limits of single layers, which engines apply and Activation does not have.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/json.h"

namespace mxfp4 {

/// layers: those that have one.
struct LayerLimits {
  const char* key = "expert_swiglu_limit_list";  // of the config: Ling's
  std::vector<int64_t> layers;
};
LayerLimits layer_limits(const Json& config);

}  // namespace mxfp4
