// --backend auto: the backend that the engine itself would choose for a model on a GPU.
#pragma once

#include <string>
#include <vector>

#include "src/backends/backend.h"

namespace mxfp4 {

/// What is known of the deployment.
struct Deployment {
  std::string engine;
  std::string gpu;    // "sm90", "gfx950", "cpu"
  std::string phase;  // "prefill", "decode" or empty
};

/// The architecture that a GPU is of: "sm90" for "H100", as for "sm90". Empty where it is not known.
std::string architecture_of(const std::string& gpu);
/// "sm75 (t4), sm80 (a30, a100), .., cpu"
std::string known_architectures();

struct BackendChoice {
  std::string backend;
  std::string why;                        // a sentence without a full stop
  std::vector<std::string> alternatives;  // in order
};

/// Those in the order that can hold every layer of the model; what is passed over stands in `why`. Throws
/// Error{usage} where no order is known, or no backend in it takes the model, naming what can be said with --backend.
BackendChoice select_backend(const Model& model, const Deployment& deployment);

}  // namespace mxfp4
