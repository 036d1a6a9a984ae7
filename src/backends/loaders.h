// Which outputs a loader reads. The rows are those of tests/engines/matrix.json.
#pragma once

#include <string>
#include <vector>

#include "src/backends/backend.h"

namespace mxfp4 {

/// The first version of the engine with which a loader was shown to read a family's experts in a backend's form; of any
/// family if none is named. Empty: no loader reads them.
std::string loader_since(const Backend& backend, const std::string& family = "");

/// Whether a loader reads the backend's form in a release of the engine; empty: the newest. A layout file with a canary
/// is read for every family.
bool has_loader(const Backend& backend, const std::string& family, const std::string& release);

/// The tensor-parallel sizes with which that was shown; none if no loader reads the family in this form.
std::vector<int> tested_tp_sizes(const Backend& backend, const std::string& family);

}  // namespace mxfp4
