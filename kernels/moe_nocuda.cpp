// The functions of moe_cuda.h in a build without CUDA.
#include <stdexcept>

#include "kernels/moe_cuda.h"

namespace mxfp4 {
namespace {

const char* const missing = "built without CUDA";

}  // namespace

std::unique_ptr<CudaMoe> upload_moe(const MoeConfig&, const MoeStorage&, const PackedMoe&) {
  throw std::runtime_error(missing);
}
std::unique_ptr<CudaMoe> random_moe(const MoeConfig&, const MoeStorage&, uint64_t) {
  throw std::runtime_error(missing);
}
GpuCeilings measure_gpu() { throw std::runtime_error(missing); }
std::string moe_cuda_missing(MoeFormat) { return missing; }

}  // namespace mxfp4
