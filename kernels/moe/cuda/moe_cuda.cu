// One MoE layer on the GPU: sizes and uploads, the sequence of launches, and its timing.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "kernels/moe/cuda/moe_launch.h"

namespace mxfp4 {
namespace {

/// Device memory, freed at the end of its scope.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) { check_cuda(cudaMalloc(&data_, size_t(count) * sizeof(T)), "cudaMalloc"); }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() { cudaFree(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

template <class T>
Buffer<T> to_device(const T* host, int64_t count) {
  Buffer<T> buffer(count);
  check_cuda(cudaMemcpy(buffer.get(), host, size_t(count) * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return buffer;
}

bool has_wgmma() {
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major == 9;
}

class Layer final : public CudaMoe {
 public:
  Layer(const MoeConfig& config, const KernelFormat& format) : c_(config), format_(format) {
    if (const std::string missing = moe_cuda_missing(format_); !missing.empty()) throw DeviceError(missing);
    if (const std::string refusal = moe_refusal(c_, format_); !refusal.empty()) throw std::invalid_argument(refusal);
    w13_ = stored_matrix(format_, 2 * c_.padded_intermediate, c_.padded_hidden);
    w2_ = stored_matrix(format_, c_.padded_hidden, c_.padded_intermediate);
    check_cuda(cudaStreamCreate(&stream_), "cudaStreamCreate");
  }
  ~Layer() override { cudaStreamDestroy(stream_); }

  void upload(const PackedMoe& p) {
    words_[0] = to_device(p.w13, c_.experts * w13_.words);
    scales_[0] = to_device(p.w13_scale, c_.experts * w13_.scales);
    words_[1] = to_device(p.w2, c_.experts * w2_.words);
    scales_[1] = to_device(p.w2_scale, c_.experts * w2_.scales);
    bias_[0] = upload_bias(p.w13_bias, w13_.view.n);
    bias_[1] = upload_bias(p.w2_bias, w2_.view.n);
    bind();
  }
  void fill(uint64_t seed, bool biases) {
    const auto make = [&](int64_t bytes, bool scales) {
      Buffer<uint8_t> b(bytes);
      launch_random(b.get(), bytes, scales, seed += uint64_t(1) << 40, stream_);
      return b;
    };
    words_[0] = make(c_.experts * w13_.words, false);
    scales_[0] = make(c_.experts * w13_.scales, true);
    words_[1] = make(c_.experts * w2_.words, false);
    scales_[1] = make(c_.experts * w2_.scales, true);
    if (biases) {
      bias_[0] = zeros(c_.experts * w13_.view.n);
      bias_[1] = zeros(c_.experts * w2_.view.n);
    }
    check_cuda(cudaStreamSynchronize(stream_), "launch_random");
    bind();
  }

  MoeOutput forward(const std::vector<uint16_t>& x, const Routing& routing) override;
  MoeTiming time(int64_t tokens, uint64_t seed) override;
  void avoid_wgmma() override {
    if (format_.cuda != CudaReader::marlin) throw std::invalid_argument("MoE kernel: this layout needs wgmma");
    wgmma_ = false;
  }

 private:
  /// One batch's buffers on the GPU.
  struct Batch {
    int tokens, slots, max_tiles;
    MoePlan plan;
    Buffer<__nv_bfloat16> x, padded_x, h, out;
    Buffer<float> results;
    Buffer<int> ids, rows, position, tile_count;
    Buffer<float> weights;
    Buffer<TokenTile> tiles;
  };

  Buffer<float> upload_bias(const uint8_t* host, int n) {
    if (!host) return {};
    const Buffer<uint8_t> raw = to_device(host, c_.experts * format_.bias_bytes(n));
    Buffer<float> out(c_.experts * n);
    launch_bias(format_.cuda, raw.get(), {c_.experts, n, int(round_up(n, format_.bias_rows))}, out.get(), stream_);
    check_cuda(cudaStreamSynchronize(stream_), "bias_kernel");
    return out;
  }
  Buffer<float> zeros(int64_t count) {
    Buffer<float> out(count);
    check_cuda(cudaMemsetAsync(out.get(), 0, size_t(count) * sizeof(float), stream_), "cudaMemset");
    return out;
  }
  void bind() {
    StoredMatrix* m[2] = {&w13_, &w2_};
    for (int i = 0; i < 2; i++) {
      m[i]->view.words = words_[i].get();
      m[i]->view.scales = scales_[i].get();
      m[i]->view.exponent = operand_exponent(largest_byte(scales_[i].get(), c_.experts * m[i]->scales));
    }
  }
  Batch make_batch(const uint16_t* x, const Routing& routing);
  void run(const Batch& b);

  MoeConfig c_;
  const KernelFormat& format_;
  StoredMatrix w13_, w2_;
  Buffer<uint8_t> words_[2], scales_[2];
  Buffer<float> bias_[2];
  cudaStream_t stream_ = nullptr;
  bool wgmma_ = has_wgmma();
};

Layer::Batch Layer::make_batch(const uint16_t* x, const Routing& r) {
  Batch b;
  b.tokens = int(r.tokens);
  b.slots = int(r.tokens * r.top_k);
  b.plan = plan_moe(double(b.slots) / double(c_.experts), wgmma_);
  b.max_tiles = max_token_tiles(b.slots, int(c_.experts), b.plan.tokens);
  // The kernels count elements of an activation in 32 bits, and token tiles in the grid's second dimension.
  if (r.tokens * r.top_k * std::max(w13_.view.k, w2_.view.k) > INT32_MAX || b.max_tiles > 65535)
    throw DeviceError("MoE kernel: too many tokens in one batch");
  b.x = to_device(reinterpret_cast<const __nv_bfloat16*>(x), r.tokens * c_.hidden);
  if (c_.hidden != w13_.view.k) b.padded_x = Buffer<__nv_bfloat16>(r.tokens * w13_.view.k);
  b.h = Buffer<__nv_bfloat16>(int64_t(b.slots) * w2_.view.k);
  b.out = Buffer<__nv_bfloat16>(r.tokens * c_.padded_hidden);
  b.results = Buffer<float>(int64_t(b.slots) * c_.padded_hidden);
  b.ids = to_device(r.ids.data(), b.slots);
  b.weights = to_device(r.weights.data(), b.slots);
  b.rows = Buffer<int>(b.slots);
  b.position = Buffer<int>(b.slots);
  b.tile_count = Buffer<int>(1);
  b.tiles = Buffer<TokenTile>(b.max_tiles);
  // Columns of h beyond the intermediate size meet stored zeros in w2, and must be finite.
  check_cuda(cudaMemset(b.h.get(), 0, size_t(b.slots) * size_t(w2_.view.k) * 2), "cudaMemset");
  // An element that no kernel writes must show: NaN.
  check_cuda(cudaMemset(b.out.get(), 0xff, size_t(r.tokens * c_.padded_hidden) * 2), "cudaMemset");
  return b;
}

void Layer::run(const Batch& b) {
  launch_route({b.ids.get(), b.slots, b.slots / b.tokens, int(c_.experts), b.plan.tokens, b.rows.get(),
                b.position.get(), b.tiles.get(), b.tile_count.get()},
               stream_);
  const int pitch = w13_.view.k;
  if (b.padded_x.get()) launch_pad(b.x.get(), b.tokens, int(c_.hidden), pitch, b.padded_x.get(), stream_);
  const Activation act{float(c_.alpha), float(c_.beta), float(c_.limit), c_.w13_block == 0, c_.w13_up_first};
  const auto product = [&](const GemmArgs& args, bool gated) {
    if (format_.cuda == CudaReader::marlin && b.plan.kernel != MoeKernel::wgmma)
      launch_marlin(args, b.plan, gated, b.max_tiles, stream_);
    else
      launch_sm90(format_.cuda, args, b.plan, gated, b.max_tiles, stream_);
  };
  product({w13_.view, bias_[0].get(), b.padded_x.get() ? b.padded_x.get() : b.x.get(), pitch, b.rows.get(),
           b.tiles.get(), b.tile_count.get(), b.h.get(), w2_.view.k, act},
          true);
  product({w2_.view, bias_[1].get(), b.h.get(), w2_.view.k, nullptr, b.tiles.get(), b.tile_count.get(), b.results.get(),
           int(c_.padded_hidden), act},
          false);
  launch_sum(
      {b.results.get(), b.position.get(), b.weights.get(), b.slots / b.tokens, int(c_.padded_hidden), b.out.get()},
      b.tokens, stream_);
}

MoeOutput Layer::forward(const std::vector<uint16_t>& x, const Routing& routing) {
  if (int64_t(x.size()) != routing.tokens * c_.hidden ||
      int64_t(routing.ids.size()) != routing.tokens * routing.top_k || routing.ids.size() != routing.weights.size() ||
      routing.tokens < 1 || routing.top_k < 1)
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

/// Every token's top_k experts, distinct and uniform.
Routing uniform_routing(int64_t tokens, int top_k, int64_t experts, std::mt19937_64& random) {
  Routing r{tokens, top_k, {}, {}};
  std::vector<int32_t> all(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; e++) all[size_t(e)] = int32_t(e);
  for (int64_t t = 0; t < tokens; t++)
    for (int j = 0; j < top_k; j++) {
      std::swap(all[size_t(j)], all[size_t(j + int64_t(random() % uint64_t(experts - j)))]);
      r.ids.push_back(all[size_t(j)]);
      r.weights.push_back(1.0f / float(top_k));
    }
  return r;
}

/// The graph of several layers' forwards in a row, replayed: the median, per forward.
MoeTiming Layer::time(int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Batch> batches;
  const int runs = tokens <= 16 ? 24 : tokens <= 256 ? 8 : 3, replays = 15;
  int64_t hit = 0;
  for (int i = 0; i < runs; i++) {
    const Routing routing = uniform_routing(tokens, c_.top_k, c_.experts, random);
    hit += int64_t(std::set<int32_t>(routing.ids.begin(), routing.ids.end()).size());
    std::vector<uint16_t> x(size_t(tokens * c_.hidden));
    for (uint16_t& v : x) v = uint16_t((random() & 0x807f) | (0x3f00 + (random() & 0x80)));  // +-0.5..2
    batches.push_back(make_batch(x.data(), routing));
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (const Batch& b : batches) run(b);
  check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = -2; i < replays; i++) {
    check_cuda(cudaEventRecord(begin, stream_), "cudaEventRecord");
    check_cuda(cudaGraphLaunch(exec, stream_), "cudaGraphLaunch");
    check_cuda(cudaEventRecord(end, stream_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end), "the MoE forward");
    float ms;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 0) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + replays / 2, times.end());

  MoeTiming t;
  t.tokens = tokens;
  t.experts_hit = hit / runs;
  t.microseconds = double(times[size_t(replays / 2)]) * 1e3 / runs;
  t.weight_bytes = double(hit) / runs * double(w13_.words + w13_.scales + w2_.words + w2_.scales);
  t.operations = 2.0 * double(tokens * c_.top_k) * 3 * double(c_.hidden) * double(c_.intermediate);
  return t;
}

}  // namespace

std::unique_ptr<CudaMoe> upload_moe(const MoeConfig& config, const KernelFormat& format, const PackedMoe& host) {
  auto layer = std::make_unique<Layer>(config, format);
  layer->upload(host);
  return layer;
}

std::unique_ptr<CudaMoe> random_moe(const MoeConfig& config, const KernelFormat& format, uint64_t seed, bool biases) {
  auto layer = std::make_unique<Layer>(config, format);
  layer->fill(seed, biases);
  return layer;
}

MoePlan plan_moe(double tokens_per_expert, bool has_wgmma) {
  if (tokens_per_expert <= 7) return {MoeKernel::stream, 8};
  if (tokens_per_expert <= 10) return {MoeKernel::stream, 16};
  const MoeKernel many = has_wgmma ? MoeKernel::wgmma : MoeKernel::tile;
  if (tokens_per_expert <= 24) return {many, 32};
  return {many, tokens_per_expert <= 48 ? 64 : 128};
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

GpuCeilings measure_gpu() {
  GpuCeilings g;
  int device = 0;  // the one that is selected
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  g.name = properties.name;
  const int64_t bytes = int64_t(2) << 30;
  const Buffer<uint8_t> from(bytes), to(bytes);
  launch_random(from.get(), bytes, false, 1, nullptr);
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < 7; i++) {
    cudaEventRecord(begin);
    check_cuda(cudaMemcpyAsync(to.get(), from.get(), size_t(bytes), cudaMemcpyDeviceToDevice), "cudaMemcpyAsync");
    cudaEventRecord(end);
    check_cuda(cudaEventSynchronize(end), "cudaMemcpyAsync");
    float ms;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    g.bytes_per_second = std::max(g.bytes_per_second, 2.0 * double(bytes) / (double(ms) * 1e-3));
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  g.operations_per_second = measure_wgmma();
  return g;
}

}  // namespace mxfp4
