// What earlier programs wrote as `fits` of a set, where this one writes something else.
#pragma once

#include "src/backends/backend.h"

namespace mxfp4 {

/// By library; empty where no earlier program wrote a backend of that name, engine and layout version.
std::vector<Fit> earlier_fits(const Backend& backend);

/// What 0.9.0 and early candidates of 1.0.0 wrote, one or the other: today's but for the engine's releases.
std::vector<std::vector<Fit>> candidates_fits(const Backend& backend);

/// What a program wrote whose newest release of the engine was this one, older than today's; empty where none did.
std::vector<Fit> fits_up_to(const Backend& backend, const std::string& newest);

}  // namespace mxfp4
