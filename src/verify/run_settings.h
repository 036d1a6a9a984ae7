// The settings of the MoE layer's forward pass: those of the original model, and those in OUT's copies.
#pragma once

#include "kernels/moe/moe.h"
#include "src/models/model.h"

namespace mxfp4 {

struct PackedCheckpoint;

struct RunSettings {
  double alpha = 1, beta = 0, limit = 0, scaling = 1;  // limit 0: none
};

RunSettings settings_of(const Model& model);

/// The settings that an engine would use: the source's, replaced by different values in OUT's config.json or in the
/// manifest's set. Each such difference is a problem.
RunSettings settings_to_run(const PackedCheckpoint& packed, const Json& set_model, const RunSettings& source,
                            Problems& problems);

/// Reports a problem if the set states another order of w13's rows than the kernel expects. `half` is the number of
/// gate's rows with padding; an order in blocks of that many rows is the same as gate before up.
void check_order(const Json& set_model, W13Order read, int64_t half, Problems& problems);

}  // namespace mxfp4
