// The inputs of a run in words: a run that cannot continue an interrupted one names the difference.
#pragma once

#include <string>

#include "src/base/json.h"

namespace mxfp4 {

/// Names at most three differences of the inputs of two runs: "sha256 was false, is true". Both are objects, as
/// run_identity.h makes them. Empty if there is none, or if one of them is no such object.
std::string changed_inputs(const std::string& was, const Json& is);

}  // namespace mxfp4
