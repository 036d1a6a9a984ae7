// The outputs that loaders read. The rows are those of tests/engines/matrix.json.
#pragma once

#include <string>
#include <vector>

#include "src/backends/backend.h"

namespace mxfp4 {

/// The first release of the engine that was tested with a loader for a family's experts in a backend's form. Without a
/// family: for any family. Empty: no loader reads them.
std::string loader_since(const Backend& backend, const std::string& family = "");

/// Whether a loader reads the backend's form in a release of the engine; empty: the newest. A layout file with a canary
/// is read for every family.
bool has_loader(const Backend& backend, const std::string& family, const std::string& release);

/// The tested tensor-parallel sizes; none if no loader reads the family in this form.
std::vector<int> tested_tp_sizes(const Backend& backend, const std::string& family);

}  // namespace mxfp4
