// A packed output opened for reading: the plan that made it, made again from its manifest, over the files as they are.
#pragma once

#include <memory>

#include "src/manifest.h"
#include "src/transfer.h"

namespace mxfp4 {

struct PackedCheckpoint {
  std::string dir;
  Manifest manifest;
  Model model;       // over manifest.source
  Plan plan;         // what was packed and copied; where it is kept, `files` says
  Checkpoint files;  // OUT's safetensors files by their own headers

  const Tensor& stored(const PackedTensor& t) const { return *files.find(t.name); }
  const Tensor& stored(const CopiedTensor& t) const { return *files.find(t.source->name); }
};

/// Reads manifest and headers, and checks that every planned tensor is there with the planned dtype and shape; what is
/// missing or different goes to `problems`. Throws Error{input} where OUT is no readable output at all.
std::unique_ptr<PackedCheckpoint> open_packed(const std::string& out, Problems& problems);

}  // namespace mxfp4
