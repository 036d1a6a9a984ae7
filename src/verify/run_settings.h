// What a model's own text says of the MoE forward, and what OUT's copies of it say.
#pragma once

#include "kernels/moe/moe.h"
#include "src/models/model.h"

namespace mxfp4 {

struct PackedCheckpoint;

struct RunSettings {
  double alpha = 1, beta = 0, limit = 0, scaling = 1;  // limit 0: none
};

RunSettings settings_of(const Model& model);

/// What an engine would run: the source's settings, except those that OUT's config.json or the manifest's set has
/// otherwise. Each of those is a problem.
RunSettings settings_to_run(const PackedCheckpoint& packed, const Json& set_model, const RunSettings& source,
                            Problems& problems);

/// A problem where the set says that w13's rows lie otherwise than the kernel takes them. half: padded rows of gate,
/// which are one block where there are halves.
void check_order(const Json& set_model, W13Order read, int64_t half, Problems& problems);

}  // namespace mxfp4
