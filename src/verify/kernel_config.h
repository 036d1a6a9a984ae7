// The form of a layer that a backend's kernel expects.
#pragma once

#include "src/backends/backend.h"

namespace mxfp4 {

/// The order of w13's rows that the kernel expects. It is written from the engines' code, not from the backend's
/// packing.
W13Order order_read(const Backend& backend, const Model& model);

/// The kernel's layer, without the activation's parameters: those of plain SiLU are set. `padded`: the size that the
/// engine pads to, on one rank.
MoeConfig kernel_config(const Backend& backend, const Model& model, const MoeLayer& layer, LayerSize padded);

}  // namespace mxfp4
