// A layer's router: a second count of its experts.
#pragma once

#include <span>

#include "src/models/model.h"

namespace mxfp4 {

/// Names of routers, behind that of the module with the experts or of one above it.
std::span<const char* const> router_names();

/// Rows of a router for experts without weights, by the config: LongCat's zero experts, Inkling's shared sinks.
int64_t rows_without_experts(const Json& config);

struct FoundRouter {
  const Tensor* tensor = nullptr;  // null: none of a known name
  std::string parent;              // "model.layers.0.mlp"
  const char* name = "";           // ".gate.weight"
};
FoundRouter find_router(const Checkpoint& checkpoint, const std::string& module);

/// The number of experts by the layer's router, whose rows for experts without weights are not counted if the config
/// has them. `experts`: those of the layer. They are returned, after a warning with the tensors that may be the router,
/// if it has no known name. If nothing may be one, reports a problem and returns -1.
int64_t routed_experts(const Checkpoint& checkpoint, const MoeLayer& layer, int64_t experts, Problems& problems);

/// Reports routers without experts. The modules of one checkpoint all end in the same way.
void check_routers(const Checkpoint& checkpoint, const Model& model, Problems& problems);

}  // namespace mxfp4
