// The experts of one layer, set and rank as the engine's parameters before conversion. An engine that OUT's packed
// bytes do not fit converts these.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

namespace mxfp4 {

/// One layer of an output.
struct LayerOfSet {
  std::string out;
  int set = 0;         // its number in the manifest
  std::string module;  // its name in the checkpoint: "model.layers.3.mlp.experts"
  int rank = 0;
};

struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};
/// A file in memory that std::free() releases.
struct RawLayerFile {
  std::unique_ptr<char, FreeMemory> data;
  size_t bytes = 0;
};

/// A safetensors file with codes, scales (U8) and biases (BF16) of w13 and w2. Names are those of a canary, and shapes
/// are [experts, rows, bytes of a row] without the engine's pads. The rows of w13 are in loaded_order(). Throws an
/// error if the packed bytes do not have the manifest's checksums.
RawLayerFile raw_layer(const LayerOfSet& layer);

}  // namespace mxfp4
