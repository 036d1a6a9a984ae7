// bench: how fast this machine hashes and packs.
#pragma once

#include <string>

namespace mxfp4 {

struct MachineBenchOptions {
  std::string backend = "marlin", engine = "vllm", engine_version;
  int threads = 0;
  int repeats = 3;
  bool json = false;
};

/// Measures in memory and prints.
void bench(const MachineBenchOptions& options);

}  // namespace mxfp4
