// The precision of experts, told by their tensors' names, dtypes and shapes.
#pragma once

#include <map>

#include "src/models/model.h"

namespace mxfp4 {

/// A module of experts: the first weight of each precision. "" is MXFP4, or a form that is read as MXFP4 and then
/// refused with a reason.
using Precisions = std::map<std::string, const Tensor*>;

/// By module: "model.layers.0.mlp.experts".
std::map<std::string_view, Precisions> precisions_of_experts(const Checkpoint& checkpoint);

/// Notes which modules were not read because their experts have another precision, one note for each precision.
void note_other_precisions(const Checkpoint& checkpoint, Model& model);

/// Reports which precision the experts have, for a checkpoint without any layer to pack.
void describe_experts(const Checkpoint& checkpoint, Problems& problems);

}  // namespace mxfp4
