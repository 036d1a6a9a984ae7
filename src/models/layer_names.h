// A checkpoint's numbered layers, by the names of its tensors alone.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

/// Whether a part of a name is one of layers of multi-token prediction: "mtp", "mtp_layers", "nextn".
bool names_mtp(std::string_view part);

/// A tensor of a layer, or all experts' tensors of one name.
struct LayerPart {
  const Tensor* first = nullptr;
  const Tensor* other = nullptr;  // the first of another shape
  std::vector<int64_t> experts;   // ids, in any order; empty if the name has none
};

/// By name within the layer; the number of an expert is a star: "mlp.experts.*.up_proj.weight".
using LayerParts = std::map<std::string, LayerPart>;

/// Layers that are numbered under one name: "model.layers", "visual.blocks", "mtp".
struct LayerStack {
  std::string root;
  std::map<int64_t, LayerParts> layers;

  bool has_experts() const;
  bool is_mtp() const { return names_mtp(root); }
};

/// Whether a text contains one of the words.
bool contains_any(std::string_view text, std::initializer_list<std::string_view> words);

/// Whether the name has the number of a layer.
bool is_in_layer(std::string_view name);

std::vector<LayerStack> layer_stacks(const Checkpoint& checkpoint);

/// The stack of the language model: the one with experts, else with the most layers outside of vision and audio. Null
/// if there is none.
const LayerStack* main_stack(const std::vector<LayerStack>& stacks);

/// "3, 7-9, 40": numbers in ascending order as ranges.
std::string ranges(const std::vector<int64_t>& numbers);

}  // namespace mxfp4
