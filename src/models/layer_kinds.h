// Which layers a config means to differ: dense ones before those with experts, other attention in some, and so on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json.h"

namespace mxfp4 {

/// The part of a layer whose tensors a key is about, or to which a tensor belongs.
enum class LayerScope : uint8_t { all, attention, experts };

/// A value that a config gives each layer. Layers of equal value are of one kind, as far as `scope` goes.
struct LayerAttribute {
  std::vector<std::string> of_layer;
  LayerScope scope = LayerScope::all;
};

/// The scope of a block of a layer: "self_attn", "mlp", "input_layernorm".
LayerScope scope_of_block(const std::string& block);

/// Every key that gives layers values: a list with one for each, numbers of some layers, a pattern that repeats, a
/// period, a border.
std::vector<LayerAttribute> layer_attributes(const Json& config, int64_t layers);

}  // namespace mxfp4
