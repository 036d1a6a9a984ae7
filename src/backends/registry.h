// The registry of backends: one line each.
#pragma once

#include "src/backend.h"

namespace mxfp4 {

extern const Backend marlin_vllm, marlin_sglang;

inline const Backend* const registry[] = {&marlin_vllm, &marlin_sglang};

}  // namespace mxfp4
