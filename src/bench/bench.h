// bench: what this machine can do, and what that says about converting a model.
#pragma once

#include <cstdint>
#include <string>

namespace mxfp4 {

struct MachineBenchOptions {
  std::string dir = ".";              // on the file system to measure
  std::string model = "gpt-oss-20b";  // one of synth_models()
  std::string checkpoint;             // instead of a model; also an output, for what it was made of
  std::string backend = "marlin", engine = "vllm";
  std::string engine_version, gpu;  // for backend "auto", which needs a checkpoint, no gpu is the one that is here
  int threads = 0;
  int repeats = 3;
  bool json = false;
};

/// Measures and prints.
void bench(const MachineBenchOptions& options);

}  // namespace mxfp4
