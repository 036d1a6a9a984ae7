// inspect: what a checkpoint holds, and every reason why convert would refuse it. Reads headers only.
#pragma once

#include <string>

#include "src/models/model.h"

namespace mxfp4 {

struct InspectOptions {
  std::string checkpoint;
  ModelOptions model;
  Links links = Links::offer;
  bool json = false;
};

/// Prints on stdout. Throws Error{input} with every problem, after printing what could be told. As JSON that is one
/// object, with the error in it: false where there is one.
bool inspect(const InspectOptions& options);

}  // namespace mxfp4
