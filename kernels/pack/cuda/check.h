// MXFP4_CUDA(call): throw DeviceError with the call and the reason, if it fails.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "kernels/pack/device.h"

namespace mxfp4 {

inline void check_device(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw DeviceError(std::string(call) + ": " + cudaGetErrorString(error));
}

}  // namespace mxfp4

#define MXFP4_CUDA(call) ::mxfp4::check_device(call, #call)
