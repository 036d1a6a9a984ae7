// A build without CUDA.
#include "kernels/device.h"

namespace mxfp4 {

int cuda_device_count() { return 0; }

bool built_with_cuda() { return false; }

std::string cuda_description() { return cuda_missing(); }

std::string cuda_missing() { return "built without CUDA"; }

void select_cuda(int) { open_cuda(0); }

std::unique_ptr<Device> open_cuda(int, int64_t) {
  throw DeviceError("this program was built without CUDA; use --device cpu, or build it where nvcc is found");
}

}  // namespace mxfp4
