#include "kernels/moe/check/moe_kernel.h"

#include <bit>

#include "kernels/moe/cuda/moe_cuda.h"

namespace mxfp4 {
namespace {

class CpuKernel final : public MoeKernel {
 public:
  CpuKernel(const KernelFormat& format, const MoeConfig& config, const PackedMoe& packed)
      : format_(format), config_(config), packed_(packed) {}
  MoeCpuOutput run(std::span<const float> x, const Routing& routing) override {
    return moe_cpu(format_, config_, packed_, x, routing);
  }

 private:
  const KernelFormat& format_;
  MoeConfig config_;
  PackedMoe packed_;
};

class CudaKernel final : public MoeKernel {
 public:
  CudaKernel(const KernelFormat& format, const MoeConfig& config, const PackedMoe& packed)
      : layer_(upload_moe(config, format, packed)) {}
  MoeCpuOutput run(std::span<const float> x, const Routing& routing) override {
    std::vector<uint16_t> bits(x.size());
    for (size_t i = 0; i < x.size(); ++i) bits[i] = uint16_t(std::bit_cast<uint32_t>(x[i]) >> 16);
    MoeOutput got = layer_->forward(bits, routing);
    return {std::move(got.out), got.padded == 0 ? 0 : 1};
  }

 private:
  std::unique_ptr<CudaMoe> layer_;
};

}  // namespace

std::unique_ptr<MoeKernel> open_moe_kernel(const KernelFormat& format, const MoeConfig& config, const PackedMoe& packed,
                                           bool cuda) {
  if (!cuda) return std::make_unique<CpuKernel>(format, config, packed);
  return std::make_unique<CudaKernel>(format, config, packed);
}

std::string cuda_kernel_missing(const KernelFormat& format) {
  return format.cuda == CudaReader::none ? "no CUDA kernel reads this layout" : moe_cuda_missing(format);
}

std::string cuda_kernel_missing(const KernelFormat& format, std::span<const MoeConfig> ranks, int64_t tokens) {
  std::string missing = cuda_kernel_missing(format);
  int64_t bytes = 0;
  for (const MoeConfig& rank : ranks) {
    if (missing.empty()) missing = moe_refusal(rank, format);
    if (missing.empty()) bytes += moe_device_bytes(rank, format, tokens);
  }
  return missing.empty() ? moe_cuda_missing(format, bytes) : missing;
}

}  // namespace mxfp4
