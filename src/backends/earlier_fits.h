// What earlier programs wrote as `fits` of a set, where this one writes something else.
#pragma once

#include "src/backends/backend.h"

namespace mxfp4 {

/// By library; empty where no earlier program wrote a backend of that name, engine and layout version.
std::vector<Fit> earlier_fits(const Backend& backend);

}  // namespace mxfp4
