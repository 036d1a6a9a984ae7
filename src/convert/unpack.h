// unpack: packed experts back to the checkpoint's own files, byte for byte.
#pragma once

#include <string>

#include "src/device/device_choice.h"

namespace mxfp4 {

struct UnpackOptions {
  std::string out, dest;
  int threads = 0;
  DeviceOptions device;
  bool force = false;  // set aside a DEST that holds this checkpoint's small files and no other file
  bool json = false;
};

/// Writes a checkpoint to `dest`: the original's shards, config, index and companions, the same files byte for byte; of
/// an output of format version 1 the shards have headers of their own.
/// Every tensor is compared with the source's checksum in the manifest; one that differs is an error and leaves
/// nothing.
void unpack(const UnpackOptions& options);

}  // namespace mxfp4
