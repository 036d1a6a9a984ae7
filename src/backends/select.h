// --backend auto: the backend that the engine itself would choose for a model on a GPU.
#pragma once

#include <string>
#include <vector>

#include "src/backends/backend.h"

namespace mxfp4 {

/// The order in which an engine looks for a kernel, for some models on some GPUs. Lists are separated by spaces.
struct Rule {
  const char* families;  // "gpt-oss" also has models of its form; "": any
  const char* gpus;
  const char* order;  // backends
  const char* file;   // of the engine, which says so
  Range releases = {};
  const char* where = "";  // a condition
};

/// What is known of the deployment.
struct Deployment {
  std::string engine;
  std::string release;  // of the engine; empty: the newest known
  std::string gpu;      // "sm90", "gfx950", "cpu"
  std::string phase;    // "prefill", "decode" or empty
  int tp_size = 1;
  bool lossy = false;  // take the engine's choice also where it changes values
};

struct BackendChoice {
  std::string engine_choice = {};  // what the engine would take, by the name here or its own
  std::string backend;             // what is written
  std::string layout_version = {};
  bool is_read = false;  // by a loader of the release
  std::string why = {};  // a sentence without a full stop
  /// Others that run on the GPU; where a loader reads some, these alone.
  std::vector<std::string> alternatives = {};
  std::vector<std::string> lossy_alternatives = {};  // that run there and change values
};

/// The first of the engine's order that is written here, keeps every value and can hold every layer of the model; what
/// is passed over stands in `why`. One that a loader reads goes before one that none does. Throws Error{usage} where
/// nothing runs there.
BackendChoice select_backend(const Model& model, const Deployment& deployment);

/// What --backend asks for. "auto": the choice above, for the GPU that is here unless another is given; all of it is
/// said. A name: itself, in the first form that the release loads on so many ranks and, if one is given, the GPU runs.
BackendChoice choose_backend(const std::string& name, const Model& model, Deployment deployment);

/// Throws Error{input} where a backend is of earlier outputs alone.
void check_written(const Backend& backend, const Model& model);

/// Throws Error{usage} where a backend, or the engine's release with it, does not run on the GPU, if one is given.
void check_gpu(const Backend& backend, const Deployment& deployment, const Model* model = nullptr);

}  // namespace mxfp4
