// A layer as the kernel of a backend takes it.
#pragma once

#include "src/backends/backend.h"

namespace mxfp4 {

/// The order in which the kernel takes w13's rows: written from the engines, not what the backend packs.
W13Order order_read(const Backend& backend, const Model& model);

/// But for the activation, which is plain SiLU. `padded`: by the engine, on one rank.
MoeConfig kernel_config(const Backend& backend, const Model& model, const MoeLayer& layer, LayerSize padded);

}  // namespace mxfp4
