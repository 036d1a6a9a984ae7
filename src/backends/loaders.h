// Which outputs a loader reads. The rows are those of tests/engines/matrix.json.
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

/// The first version of the engine with which a loader was shown to read a family's experts in a backend's form; of any
/// family where none is named. Empty: no loader reads them.
std::string loader_since(const Backend& backend, const std::string& family = "");

/// Whether one is known to read them with a release of the engine; empty: the newest.
bool has_loader(const Backend& backend, const std::string& family, const std::string& release);

/// Says that no loader reads what is to be written, where that is so: as a warning, or as Error{usage} where one is
/// required, and then also where the release is newer than those known. release: of the engine, or empty for the
/// newest.
void check_loader(const Backend& backend, const Model& model, const std::string& release, bool required);

}  // namespace mxfp4
