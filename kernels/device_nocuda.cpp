// A build without CUDA.
#include "kernels/device.h"

namespace mxfp4 {

int cuda_device_count() { return 0; }

std::string cuda_description() { return "built without CUDA"; }

std::unique_ptr<Device> open_cuda(int, int64_t) { throw DeviceError("this program was built without CUDA"); }

}  // namespace mxfp4
