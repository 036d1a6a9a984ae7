// The sequence of launches of one MoE layer's forward, and its place in a workspace.
#include <algorithm>

#include "kernels/moe/cuda/moe_buffer.h"
#include "kernels/moe/cuda/moe_forward.h"

namespace mxfp4 {
namespace {

int capability_major(int gpu) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu), "cudaDeviceGetAttribute");
  return major;
}

/// Byte offsets in the workspace of one part of a batch.
struct Places {
  int64_t x, h, results, rows, position, tile_count, tiles, end = 0;
  int64_t take(int64_t bytes) {
    const int64_t begin = end;
    end = round_up(end + bytes, 256);
    return begin;
  }
};

class Forward final : public ResidentMoe {
 public:
  Forward(const MoeConfig& config, const KernelFormat& format, const PackedMoe& packed, int gpu)
      : c_(config), format_(format), gpu_(gpu), wgmma_(capability_major(gpu) == 9) {
    if (const std::string refusal = moe_refusal(c_, format_); !refusal.empty()) throw std::invalid_argument(refusal);
    const SelectedGpu selected(gpu_);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    w13_ = bound(stored_matrix(format_, 2 * c_.padded_intermediate, c_.padded_hidden), packed.w13, packed.w13_scale);
    w2_ = bound(stored_matrix(format_, c_.padded_hidden, c_.padded_intermediate), packed.w2, packed.w2_scale);
    bias_[0] = row_bias(packed.w13_bias, w13_.n, 0);
    bias_[1] = row_bias(packed.w2_bias, w2_.n, 1);
  }
  /// Waits for the GPU, which may still read the copied biases.
  ~Forward() override {
    if (cudaSetDevice(gpu_) == cudaSuccess) cudaDeviceSynchronize();
  }

  int64_t workspace_bytes(int64_t tokens) const override { return places(tokens).end; }
  void run(const MoeBatch& batch, void* stream) const override;
  void avoid_wgmma() override {
    if (format_.cuda != CudaReader::marlin) throw std::invalid_argument("MoE kernel: this layout needs wgmma");
    wgmma_ = false;
  }

 private:
  OperandMatrix bound(const StoredMatrix& stored, const uint8_t* words, const uint8_t* scales) const {
    OperandMatrix m = stored.view;
    m.words = words;
    m.scales = scales;
    m.exponent = operand_exponent(largest_byte(scales, c_.experts * stored.scales));
    return m;
  }
  /// The biases in row order as fp32: those of the engine if they are that already, else a copy.
  const float* row_bias(const uint8_t* stored, int n, int matrix) {
    const BiasRows rows{c_.experts, n, int(round_up(n, format_.bias_rows))};
    if (!stored) return nullptr;
    if (format_.bias == BiasForm::f32 && rows.stored == n) return reinterpret_cast<const float*>(stored);
    copied_[matrix] = Buffer<float>(c_.experts * n);
    launch_bias(format_.cuda, stored, rows, copied_[matrix].get(), nullptr);
    check_cuda(cudaDeviceSynchronize(), "bias_kernel");
    return copied_[matrix].get();
  }
  Places places(int64_t tokens) const {
    const int64_t slots = tokens * c_.top_k;
    Places p;
    p.x = p.take(c_.hidden == w13_.k ? 0 : tokens * w13_.k * 2);
    p.h = p.take(slots * w2_.k * 2);
    p.results = p.take(slots * w2_.n * 4);
    p.rows = p.take(slots * 4);
    p.position = p.take(slots * 4);
    p.tile_count = p.take(4);
    p.tiles = p.take(max_token_tiles(int(slots), int(c_.experts), 8) * int64_t(sizeof(TokenTile)));
    return p;
  }
  /// The number of tokens in each part of a batch.
  int64_t part_of(const MoeBatch& batch) const {
    // The kernels count elements of an activation in 32 bits, and token tiles in the grid's second dimension.
    const int64_t slots = std::min<int64_t>(INT32_MAX / std::max(w13_.k, w2_.k), (65535 - c_.experts) * 8);
    int64_t most = std::min(batch.tokens, slots / c_.top_k), least = 0;
    if (workspace_bytes(most) > batch.workspace_bytes)
      while (most - least > 1) {
        const int64_t middle = least + (most - least) / 2;
        (workspace_bytes(middle) <= batch.workspace_bytes ? least : most) = middle;
      }
    else
      least = most;
    if (least < 1) throw std::invalid_argument("MoE kernel: the workspace has no room for one token");
    const int64_t parts = (batch.tokens + least - 1) / least;
    return (batch.tokens + parts - 1) / parts;
  }
  void run_part(const MoeBatch& batch, cudaStream_t stream) const;

  MoeConfig c_;
  const KernelFormat& format_;
  int gpu_;
  bool wgmma_;
  OperandMatrix w13_, w2_;
  const float* bias_[2] = {};
  Buffer<float> copied_[2];
};

void Forward::run(const MoeBatch& batch, void* stream) const {
  if (batch.tokens < 1) return;
  const SelectedGpu selected(gpu_);
  const int64_t part = part_of(batch);
  for (int64_t first = 0; first < batch.tokens; first += part) {
    MoeBatch b = batch;
    b.tokens = std::min(part, batch.tokens - first);
    b.x = static_cast<const __nv_bfloat16*>(batch.x) + first * c_.hidden;
    b.ids += first * c_.top_k;
    b.weights += first * c_.top_k;
    b.out = static_cast<__nv_bfloat16*>(batch.out) + first * c_.padded_hidden;
    run_part(b, static_cast<cudaStream_t>(stream));
  }
}

void Forward::run_part(const MoeBatch& batch, cudaStream_t stream) const {
  const Places p = places(batch.tokens);
  char* const base = static_cast<char*>(batch.workspace);
  int* const rows = reinterpret_cast<int*>(base + p.rows);
  int* const position = reinterpret_cast<int*>(base + p.position);
  int* const tile_count = reinterpret_cast<int*>(base + p.tile_count);
  auto* const tiles = reinterpret_cast<TokenTile*>(base + p.tiles);
  auto* const results = reinterpret_cast<float*>(base + p.results);
  auto* const h = reinterpret_cast<__nv_bfloat16*>(base + p.h);
  auto* const padded = reinterpret_cast<__nv_bfloat16*>(base + p.x);

  const int tokens = int(batch.tokens), slots = tokens * c_.top_k, experts = int(c_.experts);
  const MoePlan plan = plan_moe(double(slots) / experts, wgmma_);
  const int max_tiles = max_token_tiles(slots, experts, plan.tokens);
  // Columns of h beyond the intermediate size meet stored zeros in w2, and must be finite.
  if (const int written = w13_.n / 2; written < w2_.k)
    check_cuda(cudaMemset2DAsync(h + written, size_t(w2_.k) * 2, 0, size_t(w2_.k - written) * 2, size_t(slots), stream),
               "cudaMemset2DAsync");
  launch_route({batch.ids, batch.expert_map, int(batch.mapped), slots, c_.top_k, experts, plan.tokens, rows, position,
                tiles, tile_count},
               stream);
  const auto* x = static_cast<const __nv_bfloat16*>(batch.x);
  if (c_.hidden != w13_.k) {
    launch_pad(x, tokens, int(c_.hidden), w13_.k, padded, stream);
    x = padded;
  }
  const GatedActivation act{float(c_.alpha), float(c_.beta), float(c_.limit), c_.w13_block == 0, c_.w13_up_first};
  const auto product = [&](const GemmArgs& args, bool gated) {
    if (format_.cuda == CudaReader::marlin && plan.kernel != MoeKernel::wgmma)
      launch_marlin(args, plan, gated, max_tiles, stream);
    else
      launch_sm90(format_.cuda, args, plan, gated, max_tiles, stream);
  };
  product({w13_, bias_[0], x, w13_.k, rows, tiles, tile_count, h, w2_.k, act}, true);
  product({w2_, bias_[1], h, w2_.k, nullptr, tiles, tile_count, results, w2_.n, act}, false);
  launch_sum({results, position, batch.weights, c_.top_k, w2_.n, static_cast<__nv_bfloat16*>(batch.out)}, tokens,
             stream);
}

}  // namespace

std::unique_ptr<ResidentMoe> open_moe(const MoeConfig& config, const KernelFormat& format, const PackedMoe& packed,
                                      int gpu) {
  return std::make_unique<Forward>(config, format, packed, gpu);
}

std::string resident_moe_missing(int gpu) {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu) != cudaSuccess)
    return "there is no CUDA device " + std::to_string(gpu);
  if (major != 9)
    return "the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) + ", expected 9.0";
  return {};
}

MoePlan plan_moe(double tokens_per_expert, bool has_wgmma) {
  if (tokens_per_expert <= 7) return {MoeKernel::stream, 8};
  if (tokens_per_expert <= 10) return {MoeKernel::stream, 16};
  const MoeKernel many = has_wgmma ? MoeKernel::wgmma : MoeKernel::tile;
  if (tokens_per_expert <= 24) return {many, 32};
  return {many, tokens_per_expert <= 48 ? 64 : 128};
}

}  // namespace mxfp4
