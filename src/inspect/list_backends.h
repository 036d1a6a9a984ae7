// backends: what can be written.
#pragma once

#include <string>

#include "src/models/model.h"

namespace mxfp4 {

/// Empty: any.
struct BackendFilter {
  std::string engine, gpu;
  std::string release;     // of the engine
  std::string checkpoint;  // whose experts it holds
  ModelOptions model;
  bool json = false;
};

/// Prints on stdout. The form that convert writes unless told is marked.
void list_backends(const BackendFilter& filter);

}  // namespace mxfp4
