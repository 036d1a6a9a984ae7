// Random checkpoints with the structure of published ones.
#pragma once

#include <functional>
#include <string>

#include "src/synth/describe.h"

namespace mxfp4 {

struct SynthOptions {
  std::string model;  // one of synth_models()
  std::string dest;   // the directory; it must be missing or empty
  SynthSizes sizes;   // absent: the published size
  uint64_t seed = 0;
  int threads = 0;  // 0: one per core; at most one per shard works
  /// Called with the bytes of tensors written so far and in all, by one thread at a time. May throw to stop.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Writes config.json, model.safetensors.index.json and all shards. The bytes depend on model, sizes and seed alone.
/// `dest` appears complete or not at all, see OutputDir.
/// Throws Error{usage} for invalid options, Error{io} if writing fails.
void synth(const SynthOptions& options);

}  // namespace mxfp4
