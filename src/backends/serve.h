// How an engine is started with a packed output.
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

/// What a set needs of its engine: "moe_backend marlin, VLLM_MARLIN_INPUT_DTYPE unset"; empty: nothing.
std::string describe_settings(const Backend& backend, const Model& model);

/// The command that serves a set of `out`; empty where no loader of the engine's release (empty: the newest) reads the
/// family's experts in the backend's form.
std::string serve_command(const Backend& backend, const Model& model, const std::string& release, int tp_size,
                          const std::string& out);

/// The environment that a set needs, before a command: "VARIABLE=value "; empty: nothing.
std::string environment_of(const Backend& backend, const Model& model);

/// A word as a shell reads it.
std::string shell_word(const std::string& text);

}  // namespace mxfp4
