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
  const char* file;   // the engine's source file with this order
  Range releases = {};
  const char* where = "";  // a condition
};

/// The target of a conversion; empty fields are unknown.
struct Deployment {
  std::string engine;
  std::string release;  // of the engine; empty: the newest known
  std::string gpu;      // "sm90", "gfx950", "cpu"
  int tp_size = 1;
  bool no_loader = false;  // accept a backend that no loader reads
};

struct BackendChoice {
  std::string engine_choice = {};  // the engine's own choice, by this tool's name or the engine's
  std::string backend;             // the backend to write
  std::string layout_version = {};
  bool is_read = false;                              // a loader of the release reads it; false only if none is needed
  std::string why = {};                              // a sentence without a full stop
  std::vector<std::string> alternatives = {};        // others that run on the GPU and that a loader reads
  std::vector<std::string> lossy_alternatives = {};  // run on the GPU and change values
};

/// The first backend in the engine's order that can be written, is lossless and supports every layer of the model.
/// `why` lists the skipped backends. If no loader of the release reads that backend, it is replaced by the first
/// backend on that GPU that a loader reads. Throws Error{usage} if there is none.
BackendChoice select_backend(const Model& model, const Deployment& deployment);

/// The backend for --backend. "auto": the choice of select_backend() for the GPU of this machine, unless another GPU is
/// given; the choice is printed. A name: that backend, in the first form that the release loads on this number of ranks
/// and that the given GPU runs.
BackendChoice choose_backend(const std::string& name, const Model& model, Deployment deployment);

/// Every backend of the engine that holds the model without a loss, runs on the GPU, if one is given, and is read by a
/// loader of the release.
std::vector<std::string> read_backends(const Model& model, const Deployment& deployment);

/// Throws Error{usage} if a GPU is given on which the backend, or the engine's release with the backend, does not run.
void check_gpu(const Backend& backend, const Deployment& deployment, const Model* model = nullptr);

}  // namespace mxfp4
