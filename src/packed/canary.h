// The canary: a tiny raw layer and its packed form, by which a loader sees whether the installed engine's own converter
// makes these bytes. In a safetensors file below 1 MiB: `in.*` as the engine's parameters hold the layer before
// conversion (padded, rows as loaded), `out.*` as after it.
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

/// Not for a backend from a layout file, which is for one size.
inline bool has_canary(const Backend& backend) { return backend.layout_file.empty(); }

/// The whole file. Two experts; hidden and intermediate leave the model's remainders modulo 256.
std::string make_canary(const Model& model, const Backend& backend);

}  // namespace mxfp4
