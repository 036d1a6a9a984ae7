// The canary: a tiny layer before and after packing. A loader lets the installed engine convert it, and compares the
// bytes. It is a safetensors file below 1 MiB. `in.*` is the layer in the engine's parameters before conversion
// (padded, rows as loaded), `out.*` after conversion.
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

/// Backends from layout files have no canary, because a layout file fits one size only.
inline bool has_canary(const Backend& backend) { return backend.layout_file.empty(); }

/// The text of the file. The layer has two experts; its hidden and intermediate sizes equal the model's modulo 256.
std::string make_canary(const Model& model, const Backend& backend);

}  // namespace mxfp4
