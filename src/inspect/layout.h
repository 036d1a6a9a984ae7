// layout: what a layout file says, and a layout file of a built-in backend.
#pragma once

#include <string>

#include "src/models/model.h"

namespace mxfp4 {

struct LayoutOptions {
  std::string file;
  std::string backend, engine, layout_version;  // to write `file`; no backend: it is read
  std::string checkpoint;                       // whose sizes are meant
  int tp_size = 1;
  ModelOptions model;
  bool json = false;
};

/// Prints what the file says, or makes it, which no file of its name may be.
void layout(const LayoutOptions& options);

}  // namespace mxfp4
