// An output that a run has begun, and not finished.
#pragma once

#include <string>

namespace mxfp4 {

/// Throws Error{input} if only the staging directory of the output is there. shown: a path at which nothing is.
void refuse_unfinished(const std::string& shown);

}  // namespace mxfp4
