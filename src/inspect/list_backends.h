// backends: lists the backends that convert can write.
#pragma once

#include <string>

#include "src/models/model.h"

namespace mxfp4 {

/// An empty text matches everything.
struct BackendFilter {
  std::string engine, gpu;
  std::string release;     // of the engine
  std::string checkpoint;  // the backend can hold its experts
  ModelOptions model;
  bool json = false;
};

/// Prints to stdout. An asterisk marks the layout version that convert writes by default.
void list_backends(const BackendFilter& filter);

}  // namespace mxfp4
