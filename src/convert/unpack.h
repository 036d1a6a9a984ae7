// unpack: packed experts back to the checkpoint's own tensors, byte for byte.
#pragma once

#include <string>

#include "src/device/device_choice.h"

namespace mxfp4 {

struct UnpackOptions {
  std::string out, dest;
  int threads = 0;
  DeviceOptions device;
  bool json = false;
};

/// Writes a checkpoint to `dest`: the shards of the original with every tensor, its config and index, the companions.
/// Every tensor is compared with the source's checksum in the manifest; one that differs is an error and leaves
/// nothing.
void unpack(const UnpackOptions& options);

}  // namespace mxfp4
