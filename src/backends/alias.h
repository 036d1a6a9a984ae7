// The names that engines themselves have for backends.
#pragma once

#include <string>

namespace mxfp4 {

/// The backend that `name` means for an engine: a backend's name, or a value of the engine's own option
/// ("flashinfer_cutlass"). If several backends match, `gpu` decides, or the first GPU of this machine if `gpu` is
/// empty; then the engine's preference. Throws Error{usage} if the GPU decides and is unknown, if no match runs on it,
/// or if nothing matches. The error proposes the nearest name.
std::string backend_called(const std::string& name, const std::string& engine, const std::string& gpu);

}  // namespace mxfp4
