// The functions of moe_cuda.h in a build without CUDA.
#include "kernels/device_error.h"
#include "kernels/moe/cuda/moe_cuda.h"

namespace mxfp4 {
namespace {

const char* const missing = "built without CUDA";

}  // namespace

std::unique_ptr<CudaMoe> upload_moe(const MoeConfig&, const KernelFormat&, const PackedMoe&) {
  throw DeviceError(missing);
}
std::unique_ptr<CudaMoe> random_moe(const MoeConfig&, const KernelFormat&, uint64_t, bool) {
  throw DeviceError(missing);
}
GpuCeilings measure_gpu() { throw DeviceError(missing); }
std::string moe_cuda_missing(const KernelFormat&, int64_t) { return missing; }

}  // namespace mxfp4
