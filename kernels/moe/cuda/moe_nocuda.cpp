// The functions of moe_cuda.h and moe_forward.h in a build without CUDA.
#include "kernels/device_error.h"
#include "kernels/moe/cuda/moe_cuda.h"
#include "kernels/moe/cuda/moe_forward.h"

namespace mxfp4 {
namespace {

const char* const missing = "built without CUDA";

}  // namespace

std::unique_ptr<CudaMoe> upload_moe(const MoeConfig&, const KernelFormat&, const PackedMoe&) {
  throw DeviceError(missing);
}
std::unique_ptr<ResidentMoe> open_moe(const MoeConfig&, const KernelFormat&, const PackedMoe&, int) {
  throw DeviceError(missing);
}
std::string resident_moe_missing(int) { return missing; }
std::string moe_cuda_missing(const KernelFormat&, int64_t) { return missing; }

}  // namespace mxfp4
