// Releases that have a kernel, but not on all GPUs on which other releases have it.
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

/// The GPUs on which a release of the backend's engine (empty: the newest known) has its kernel, written as
/// Backend::gpu.
std::string gpus_in(const Backend& backend, const std::string& release);

/// The reason why a release of the backend's engine (empty: the newest known) lacks it on a GPU; empty if it has it.
std::string why_missing(const Backend& backend, const std::string& release, const std::string& gpu);

/// "not 0.26.0 to 0.31.0 on SM12x": the GPUs on which a backend is missing in releases that load its bytes on other
/// GPUs. Empty if no release lacks the backend.
std::string describe_missing(const Backend& backend);

}  // namespace mxfp4
