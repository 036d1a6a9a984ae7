// One MoE layer on the GPU: sizes and uploads.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/moe/cuda/moe_buffer.h"
#include "kernels/moe/cuda/moe_forward.h"

namespace mxfp4 {
namespace {

class Layer final : public CudaMoe {
 public:
  Layer(const MoeConfig& config, const KernelFormat& format) : c_(config), format_(format) {
    if (const std::string missing = moe_cuda_missing(format_); !missing.empty()) throw DeviceError(missing);
    if (const std::string refusal = moe_refusal(c_, format_); !refusal.empty()) throw std::invalid_argument(refusal);
    bytes_ = moe_bytes(c_, format_);
    check_cuda(cudaStreamCreate(&stream_), "cudaStreamCreate");
  }
  ~Layer() override { cudaStreamDestroy(stream_); }

  void upload(const PackedMoe& p) {
    words_[0] = to_device(p.w13, c_.experts * bytes_.w13);
    scales_[0] = to_device(p.w13_scale, c_.experts * bytes_.w13_scale);
    words_[1] = to_device(p.w2, c_.experts * bytes_.w2);
    scales_[1] = to_device(p.w2_scale, c_.experts * bytes_.w2_scale);
    if (p.w13_bias) bias_[0] = to_device(p.w13_bias, bias_bytes(0));
    if (p.w2_bias) bias_[1] = to_device(p.w2_bias, bias_bytes(1));
    open();
  }

  MoeOutput forward(const std::vector<uint16_t>& x, const Routing& routing) override;
  void avoid_wgmma() override { moe_->avoid_wgmma(); }

 private:
  /// One batch's buffers on the GPU.
  struct Batch {
    int64_t tokens;
    Buffer<__nv_bfloat16> x, out;
    Buffer<int> ids;
    Buffer<float> weights;
    Buffer<uint8_t> workspace;
    int64_t workspace_bytes;
  };

  int64_t bias_bytes(int matrix) const {
    return c_.experts * format_.bias_bytes(matrix == 0 ? 2 * c_.padded_intermediate : c_.padded_hidden);
  }
  void open() {
    int gpu = 0;
    check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
    PackedMoe p;
    p.w13 = words_[0].get(), p.w13_scale = scales_[0].get(), p.w13_bias = bias_[0].get();
    p.w2 = words_[1].get(), p.w2_scale = scales_[1].get(), p.w2_bias = bias_[1].get();
    moe_ = open_moe(c_, format_, p, gpu);
  }
  Batch make_batch(const uint16_t* x, const Routing& routing);
  void run(const Batch& b) {
    moe_->run({b.tokens, b.x.get(), b.ids.get(), b.weights.get(), nullptr, 0, b.out.get(), b.workspace.get(),
               b.workspace_bytes},
              stream_);
  }

  MoeConfig c_;
  const KernelFormat& format_;
  MoeBytes bytes_;
  Buffer<uint8_t> words_[2], scales_[2], bias_[2];
  std::unique_ptr<ResidentMoe> moe_;
  cudaStream_t stream_ = nullptr;
};

Layer::Batch Layer::make_batch(const uint16_t* x, const Routing& r) {
  const int64_t out = r.tokens * c_.padded_hidden;
  Batch b;
  b.tokens = r.tokens;
  b.x = to_device(reinterpret_cast<const __nv_bfloat16*>(x), r.tokens * c_.hidden);
  b.out = Buffer<__nv_bfloat16>(out);
  b.ids = to_device(r.ids.data(), r.tokens * r.top_k);
  b.weights = to_device(r.weights.data(), r.tokens * r.top_k);
  b.workspace_bytes = moe_->workspace_bytes(r.tokens);
  b.workspace = Buffer<uint8_t>(b.workspace_bytes);
  // Elements that no kernel writes must show: NaN.
  check_cuda(cudaMemset(b.workspace.get(), 0xff, size_t(b.workspace_bytes)), "cudaMemset");
  check_cuda(cudaMemset(b.out.get(), 0xff, size_t(out) * 2), "cudaMemset");
  return b;
}

MoeOutput Layer::forward(const std::vector<uint16_t>& x, const Routing& routing) {
  if (int64_t(x.size()) != routing.tokens * c_.hidden ||
      int64_t(routing.ids.size()) != routing.tokens * routing.top_k || routing.ids.size() != routing.weights.size() ||
      routing.tokens < 1 || routing.top_k != c_.top_k)
    throw std::invalid_argument("MoE kernel: activations and routing do not fit");
  const Batch b = make_batch(x.data(), routing);
  run(b);
  std::vector<uint16_t> raw(size_t(routing.tokens * c_.padded_hidden));
  check_cuda(cudaStreamSynchronize(stream_), "the MoE forward");
  check_cuda(cudaMemcpy(raw.data(), b.out.get(), raw.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
  MoeOutput result;
  result.out.reserve(x.size());
  for (int64_t t = 0; t < routing.tokens; t++)
    for (int64_t i = 0; i < c_.padded_hidden; i++) {
      const uint32_t bits = uint32_t(raw[size_t(t * c_.padded_hidden + i)]) << 16;
      const float v = std::bit_cast<float>(bits);
      if (i < c_.hidden)
        result.out.push_back(v);
      else if (!(std::abs(v) <= result.padded))
        result.padded = std::abs(v);
    }
  return result;
}

}  // namespace

std::unique_ptr<CudaMoe> upload_moe(const MoeConfig& config, const KernelFormat& format, const PackedMoe& host) {
  auto layer = std::make_unique<Layer>(config, format);
  layer->upload(host);
  return layer;
}

std::string moe_cuda_missing(const KernelFormat& format, int64_t bytes) {
  int device = 0, major = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
    return "no CUDA device";
  if (major < 8) return "the MoE kernels need compute capability 8.0";
  if (format.cuda != CudaReader::marlin && major != 9)
    return "the MoE kernel of this layout needs compute capability 9.0";
  size_t free = 0, all = 0;
  if (bytes > 0 && (cudaMemGetInfo(&free, &all) != cudaSuccess || int64_t(free) < bytes))
    return "the layer needs " + std::to_string(bytes >> 20) + " MiB of the GPU's memory, " +
           std::to_string(free >> 20) + " MiB are free";
  return {};
}

}  // namespace mxfp4
