// The `fits` of outputs that mxfp4-pack 0.9.0 and candidates of 1.0.0 wrote, for backends whose `fits` differ in this
// version.
#pragma once

#include "src/backends/backend.h"

namespace mxfp4 {

/// By library; empty if those versions had no backend of this name, engine and layout version.
std::vector<Fit> earlier_fits(const Backend& backend);

/// The forms that 0.9.0 and early candidates of 1.0.0 wrote: the current fits with other releases of the engine.
std::vector<std::vector<Fit>> candidates_fits(const Backend& backend);

/// The fits that a version wrote whose newest release of the engine was `newest`, older than the current one; empty if
/// no version did.
std::vector<Fit> fits_up_to(const Backend& backend, const std::string& newest);

}  // namespace mxfp4
