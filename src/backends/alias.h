// The names that engines themselves have for backends.
#pragma once

#include <string>

namespace mxfp4 {

/// The backend of an engine that `name` means: itself, or one whose option of the engine has that value
/// ("flashinfer_cutlass"), on `gpu`, or where that is empty on the GPU that is here; of several the one that the engine
/// itself prefers there. Throws Error{usage} where the GPU decides and is not known, where nothing called so runs on
/// it, and where there is none; the nearest name is proposed.
std::string backend_called(const std::string& name, const std::string& engine, const std::string& gpu);

}  // namespace mxfp4
