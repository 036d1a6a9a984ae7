// unpack: restores the checkpoint's original files, byte for byte.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/device/device_choice.h"
#include "src/io/output.h"

namespace mxfp4 {

struct Checkpoint;
struct PackedCheckpoint;
struct PackedSet;

struct UnpackOptions {
  std::string out, dest;
  int threads = 0;
  DeviceOptions device;
  bool json = false;
};

/// Restores the original shards, config, index and companions in `dest`, byte for byte. Compares every tensor with the
/// source's checksum in the manifest. If one differs, throws an error and writes no `dest`. Returns what --json prints.
Json unpack(const UnpackOptions& options);

}  // namespace mxfp4
