// layout: describes a layout file, or writes the layout file of a built-in backend.
#pragma once

#include <string>

#include "src/models/model.h"

namespace mxfp4 {

struct LayoutOptions {
  std::string file;
  std::string backend, engine, engine_version, layout_version;  // to write `file`; no backend: `file` is read
  std::string checkpoint;                                       // gives the sizes
  int tp_size = 1;
  ModelOptions model;
  bool json = false;
};

/// Describes the file, or creates it; then `file` must not exist.
void layout(const LayoutOptions& options);

}  // namespace mxfp4
