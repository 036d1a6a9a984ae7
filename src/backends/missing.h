// Releases that have a kernel, but not on all GPUs on which others have it.
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

/// The GPUs on which a release of the backend's engine (empty: the newest known) has its kernel, written as
/// Backend::gpu.
std::string gpus_in(const Backend& backend, const std::string& release);

/// Why a release of an engine (empty: the newest known) lacks a backend on a GPU; empty where it does not.
std::string why_missing(const std::string& backend, const std::string& engine, const std::string& release,
                        const std::string& gpu);

/// "not 0.26.0 to 0.31.0 on SM12x": where a backend is missing in releases that load its bytes on other GPUs; empty
/// where it is in all.
std::string describe_missing(const Backend& backend);

}  // namespace mxfp4
