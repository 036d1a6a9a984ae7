// Which layers a config means to differ: dense ones before those with experts, other attention in some, and so on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/json.h"

namespace mxfp4 {

/// A value that a config gives each layer.
struct LayerAttribute {
  std::vector<std::string> of_layer;
  bool is_of_experts = false;  // dense or with experts
};

std::vector<LayerAttribute> layer_attributes(const Json& config, int64_t layers);

/// Whether layers of equal value all have a tensor or all lack it, for one of the attributes or a period. `has`: by
/// layer. Attributes of experts explain what is in the block of the experts alone.
bool is_explained(const std::map<int64_t, bool>& has, bool is_of_experts, const std::vector<LayerAttribute>& attributes,
                  int64_t layers);

}  // namespace mxfp4
