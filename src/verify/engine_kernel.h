// Which kernel an engine reads a backend's bytes with. Written from the engines, not from src/backends: a backend that
// is consistently wrong must not find a kernel that agrees.
#pragma once

#include "kernels/moe/cpu/moe_fragment.h"
#include "src/backends/backend.h"

namespace mxfp4 {

struct EngineKernel {
  const char *backend, *engine, *layout_version, *fragment;  // "": any
  bool halves = false;  // where rows lie as loaded: this engine de-interleaves pairs first
};

/// Null where there is none.
const EngineKernel* find_engine_kernel(const Backend& backend);

/// The order in which the kernel takes w13's rows.
W13Order order_read(const EngineKernel& kernel, const Model& model);

/// A layer as the kernel takes it, but for the activation: plain SiLU. `padded`: by the engine, on one rank.
MoeConfig kernel_config(const EngineKernel& kernel, const Model& model, const MoeLayer& layer, LayerSize padded);

}  // namespace mxfp4
