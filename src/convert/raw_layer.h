// unpack --layer: one layer's experts of one set and rank, as the engine's raw parameters hold them before conversion.
#pragma once

#include <string>

#include "src/device/device_choice.h"

namespace mxfp4 {

struct RawLayerOptions {
  std::string out;
  std::string layer;  // its module in the checkpoint: "model.layers.3.mlp.experts"
  int set = 0;        // number in the manifest
  int rank = 0;
  int threads = 0;
  DeviceOptions device;
};

/// Prints a safetensors file: codes, scales (U8) and biases (BF16) of w13 and w2, named as in a canary, [experts, rows,
/// bytes of a row] without the engine's pads; rows of w13 as loaded_order(). The packed bytes have the manifest's
/// checksums, else it is an error and nothing is printed.
void print_raw_layer(const RawLayerOptions& options);

}  // namespace mxfp4
