// An open set of an output, as the library's functions share it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kernels/pack/resident.h"
#include "src/library/guard.h"

namespace mxfp4 {
struct PackedCheckpoint;
struct PackedTensor;
struct Plan;
}  // namespace mxfp4

struct mxfp4_pack_set {
  mxfp4_pack_set();
  ~mxfp4_pack_set();
  /// Throws Error{usage} if the rank has no tensor of this name.
  const mxfp4::PackedTensor& tensor(int rank, const char* given) const;

  std::unique_ptr<mxfp4::PackedCheckpoint> output;
  const mxfp4::Plan* plan = nullptr;
  std::map<std::pair<int, std::string>, const mxfp4::PackedTensor*> tensors;  // by rank and name
  mutable mxfp4::Resident resident;
};
