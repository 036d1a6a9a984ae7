// inspect: the contents of a checkpoint, and every reason why convert would refuse it. Reads headers only.
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

/// Prints to stdout. Throws Error{input} with every problem, after everything known is printed. With --json it prints
/// one object with the problems instead, and returns whether there are none.
bool inspect(const InspectOptions& options);

}  // namespace mxfp4
