// The registry of backends, one line for each. The first backend of a name and engine is the default.
#pragma once

#include "src/backends/backend.h"

namespace mxfp4 {

using Backends = const std::vector<Backend>;
extern Backends marlin, marlin_fp8, humming, humming_w4a8, flashinfer_cutlass, flashinfer_cutlass_mxfp8,
    flashinfer_trtllm, flashinfer_cutedsl, flashinfer_humming, cutlass_mxfp4, triton_hopper, triton_blackwell,
    triton_rocm, aiter_triton, deepgemm, deepgemm_mega, aiter_a16w4, aiter_w4a4, vllm_cpu, canonical;

inline Backends* const registry[] = {
    &marlin,
    &marlin_fp8,
    &humming,
    &humming_w4a8,
    &triton_hopper,
    &flashinfer_cutlass,
    &flashinfer_humming,
    &triton_blackwell,
    &triton_rocm,
    &flashinfer_trtllm,
    &flashinfer_cutlass_mxfp8,
    &cutlass_mxfp4,
    &flashinfer_cutedsl,
    &deepgemm,
    &deepgemm_mega,
    &aiter_a16w4,
    &aiter_w4a4,
    &aiter_triton,
    &vllm_cpu,
    &canonical,
};

}  // namespace mxfp4
