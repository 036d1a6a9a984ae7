// The command that starts an engine with a packed output.
#pragma once

#include <string>

#include "src/backends/backend.h"
#include "src/backends/parallel.h"

namespace mxfp4 {

/// The settings that a set requires of its engine: "moe_backend marlin, VLLM_MARLIN_INPUT_DTYPE unset"; empty if there
/// are none. Without a model, all possible settings: "moe_backend triton or triton_unfused".
std::string describe_settings(const Backend& backend, const Model* model);

/// The settings that a set requires, and whether the loader makes them: "the loader sets moe_backend marlin; it
/// requires VLLM_MARLIN_INPUT_DTYPE unset". If no loader reads the set: "it requires ..".
std::string describe_who_sets(const Backend& backend, const Model& model, bool has_loader);

/// The releases and GPUs that a set fits: "vllm 0.26.0 to 0.33.0 on SM10x, SM12x (not 0.26.0 to 0.31.0 on SM12x);
/// triton_kernels 3.5 on". If a loader reads the family, from the first release with that loader.
std::string describe_fits(const Backend& backend, const std::string& family);

/// A set to be served.
struct Served {
  const Backend& backend;
  const Model& model;
  std::string release;  // of the engine; empty: the newest
  int tp_size = 1;
  bool is_first = true;  // of the output's sets; others are served on request
  Load load = {};
};

/// Why engines do not load the model, whatever its experts' form: names that training tools left, or layers that one
/// config cannot describe. Empty if nothing is known.
std::string why_not_loaded(const Model& model);

/// The command that serves a set of `out`. Empty in four cases:
/// - Ranks are missing.
/// - No loader of the release reads the family's experts in this form.
/// - The engine does not start with this number of tensor-parallel ranks.
/// - The engine does not load the model.
/// If one GPU does not hold a set for tensor-parallel size 1, the command uses expert parallelism.
std::string serve_command(const Served& set, const std::string& out);

}  // namespace mxfp4
