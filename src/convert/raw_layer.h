// unpack --layer: prints the experts of one layer, set and rank as the engine's parameters before conversion.
#pragma once

#include <string>

#include "src/device/device_choice.h"

namespace mxfp4 {

struct RawLayerOptions {
  std::string out;
  std::string layer;  // the module's name in the checkpoint: "model.layers.3.mlp.experts"
  int set = 0;        // its number in the manifest
  int rank = 0;
  int threads = 0;
  DeviceOptions device;
};

/// Prints a safetensors file with codes, scales (U8) and biases (BF16) of w13 and w2. Names are those of a canary, and
/// shapes are [experts, rows, bytes of a row] without the engine's pads. The rows of w13 are in loaded_order(). If the
/// packed bytes do not have the manifest's checksums, throws an error and prints nothing.
void print_raw_layer(const RawLayerOptions& options);

}  // namespace mxfp4
