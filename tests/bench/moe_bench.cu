// mxfp4_moe_bench HIDDEN INTERMEDIATE EXPERTS TOP_K [TOKENS..]: times of every CUDA MoE kernel on a Hopper GPU.
//
// The layer has this shape, padded as vLLM pads it, random codes and no biases. A time is the median of 15 replays of a
// CUDA graph, per forward. The graph has several routings in turn, so that each forward reads experts that are not in
// the L2 cache. The floor is the slower of two things: reading the weights of the chosen experts at the rate of a copy,
// and the operations at the rate of a chain of wgmma.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "kernels/moe/cuda/moe_buffer.h"
#include "kernels/moe/cuda/moe_forward.h"
#include "kernels/moe/cuda/moe_wgmma.cuh"
#include "tests/bench/moe_shapes.h"

using namespace mxfp4;

namespace {

/// splitmix64
__device__ uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// Random words, or eight scale bytes of 118..124 each.
__global__ void random_kernel(uint64_t* out, int64_t count, bool scales, uint64_t seed) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x) {
    const uint64_t r = mix(seed + uint64_t(i));
    uint64_t s = 0;
    for (int b = 0; b < 8; b++) s |= (118 + (r >> 8 * b & 0xff) % 7) << 8 * b;
    out[i] = scales ? s : r;
  }
}

/// Multiplies random registers by random tokens in shared memory repeatedly, at the peak rate of the tensor cores.
__global__ void __launch_bounds__(256, 1) wgmma_chain(int steps, float* out) {
  extern __shared__ __align__(1024) uint8_t shared[];
  uint32_t r = threadIdx.x * 2654435761u + 1;
  for (int i = threadIdx.x; i < 128 * 128 / 4; i += 256) {
    r = r * 1664525u + 1013904223u;
    reinterpret_cast<uint32_t*>(shared)[i] = (r & 0x807f807fu) | 0x3f003f00u;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[2][64] = {};
  uint32_t a[4][4];
  for (auto& step : a)
    for (uint32_t& v : step) r = r * 1664525u + 1013904223u, v = (r & 0x807f807fu) | 0x3f003f00u;
  const uint64_t b = token_descriptor(shared);
  for (int i = 0; i < steps; i++) {
#pragma unroll
    for (int s = 0; s < 4; s++) {
      wgmma_fence();
      Wgmma<128>::multiply(d[0], a[s], b + s * descriptor_step);
      Wgmma<128>::multiply(d[1], a[s], b + s * descriptor_step);
    }
    wgmma_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  float sum = 0;
  for (int i = 0; i < 64; i++) sum += d[0][i] + d[1][i];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

class Timer {
 public:
  Timer() {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Timer(const Timer&) = delete;
  ~Timer() { cudaEventDestroy(begin_), cudaEventDestroy(end_); }
  template <class Work>
  double seconds(cudaStream_t stream, Work work) {
    check_cuda(cudaEventRecord(begin_, stream), "cudaEventRecord");
    work();
    check_cuda(cudaEventRecord(end_, stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "the work that is timed");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms * 1e-3;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

Buffer<uint8_t> random_bytes(int64_t bytes, bool scales, uint64_t seed) {
  Buffer<uint8_t> b(bytes);
  random_kernel<<<2048, 256>>>(reinterpret_cast<uint64_t*>(b.get()), bytes / 8, scales, seed);
  check_cuda(cudaGetLastError(), "random_kernel");
  return b;
}

/// The limits of the GPU, measured; a copy counts bytes read and written.
struct Ceilings {
  double bytes_per_second = 0, operations_per_second = 0;
};

Ceilings measure_gpu(const cudaDeviceProp& gpu) {
  Ceilings c;
  Timer timer;
  const int64_t bytes = int64_t(2) << 30;
  const Buffer<uint8_t> from = random_bytes(bytes, false, 1), to(bytes);
  for (int i = 0; i < 7; i++) {
    const auto copy = [&] { cudaMemcpyAsync(to.get(), from.get(), size_t(bytes), cudaMemcpyDeviceToDevice); };
    c.bytes_per_second = std::max(c.bytes_per_second, 2.0 * double(bytes) / timer.seconds(nullptr, copy));
  }
  const int blocks = gpu.multiProcessorCount, steps = 20000;
  const Buffer<float> out(int64_t(blocks) * 256);
  for (int i = 0; i < 5; i++) {
    const auto multiply = [&] { wgmma_chain<<<blocks, 256, 128 * 128>>>(steps, out.get()); };
    const double operations = 2.0 * 64 * 128 * 16 * 8 * 2 * steps * blocks;
    c.operations_per_second = std::max(c.operations_per_second, operations / timer.seconds(nullptr, multiply));
  }
  return c;
}

/// Every token's top_k experts, distinct and uniform: [tokens][top_k].
std::vector<int32_t> uniform_routing(int64_t tokens, const MoeConfig& c, std::mt19937_64& random) {
  std::vector<int32_t> all(size_t(c.experts)), ids;
  for (size_t e = 0; e < all.size(); e++) all[e] = int32_t(e);
  for (int64_t t = 0; t < tokens; t++)
    for (size_t j = 0; j < size_t(c.top_k); j++) {
      std::swap(all[j], all[j + size_t(random() % uint64_t(all.size() - j))]);
      ids.push_back(all[j]);
    }
  return ids;
}

/// A layer of random codes, with scales in 2^-9..2^-3.
class Layer {
 public:
  Layer(const MoeConfig& c, const KernelFormat& format) : c_(c), bytes_(moe_bytes(c, format)) {
    w13_ = random_bytes(c.experts * bytes_.w13, false, 1);
    w13_scale_ = random_bytes(c.experts * bytes_.w13_scale, true, 2);
    w2_ = random_bytes(c.experts * bytes_.w2, false, 3);
    w2_scale_ = random_bytes(c.experts * bytes_.w2_scale, true, 4);
    PackedMoe p;
    p.w13 = w13_.get(), p.w13_scale = w13_scale_.get(), p.w2 = w2_.get(), p.w2_scale = w2_scale_.get();
    moe_ = open_moe(c, format, p, 0);
    check_cuda(cudaStreamCreate(&stream_), "cudaStreamCreate");
  }
  Layer(const Layer&) = delete;
  ~Layer() { cudaStreamDestroy(stream_); }

  void avoid_wgmma() { moe_->avoid_wgmma(); }
  void print_times(int64_t tokens, const Ceilings& gpu);

 private:
  struct Batch {
    Buffer<uint16_t> x, out;
    Buffer<int32_t> ids;
    Buffer<float> weights;
    Buffer<uint8_t> workspace;
    int64_t workspace_bytes;
  };
  Batch make_batch(int64_t tokens, const std::vector<int32_t>& ids, std::mt19937_64& random) const;
  double median_seconds(const std::vector<Batch>& batches, int64_t tokens);

  MoeConfig c_;
  MoeBytes bytes_;
  Buffer<uint8_t> w13_, w13_scale_, w2_, w2_scale_;
  std::unique_ptr<ResidentMoe> moe_;
  cudaStream_t stream_ = nullptr;
};

Layer::Batch Layer::make_batch(int64_t tokens, const std::vector<int32_t>& ids, std::mt19937_64& random) const {
  std::vector<uint16_t> x(size_t(tokens * c_.hidden));
  for (uint16_t& v : x) v = uint16_t((random() & 0x807f) | (0x3f00 + (random() & 0x80)));  // bf16 of +-0.5..2
  const std::vector<float> weights(ids.size(), 1.0f / float(c_.top_k));
  Batch b;
  b.x = to_device(x.data(), int64_t(x.size()));
  b.out = Buffer<uint16_t>(tokens * c_.padded_hidden);
  b.ids = to_device(ids.data(), int64_t(ids.size()));
  b.weights = to_device(weights.data(), int64_t(weights.size()));
  b.workspace_bytes = moe_->workspace_bytes(tokens);
  b.workspace = Buffer<uint8_t>(b.workspace_bytes);
  return b;
}

/// The graph of all batches in a row, replayed: the median, per batch.
double Layer::median_seconds(const std::vector<Batch>& batches, int64_t tokens) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (const Batch& b : batches)
    moe_->run({tokens, b.x.get(), b.ids.get(), b.weights.get(), nullptr, 0, b.out.get(), b.workspace.get(),
               b.workspace_bytes},
              stream_);
  check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  Timer timer;
  std::vector<double> times;
  for (int i = -2; i < 15; i++) {
    const double seconds = timer.seconds(stream_, [&] { cudaGraphLaunch(exec, stream_); });
    if (i >= 0) times.push_back(seconds);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + 7, times.end());
  return times[7] / double(batches.size());
}

void Layer::print_times(int64_t tokens, const Ceilings& gpu) {
  std::mt19937_64 random(1);
  std::vector<Batch> batches;
  const int runs = tokens <= 16 ? 24 : tokens <= 256 ? 8 : 3;
  size_t chosen = 0;
  for (int i = 0; i < runs; i++) {
    const std::vector<int32_t> ids = uniform_routing(tokens, c_, random);
    chosen += std::set<int32_t>(ids.begin(), ids.end()).size();
    batches.push_back(make_batch(tokens, ids, random));
  }
  const double seconds = median_seconds(batches, tokens), experts = double(chosen) / runs;
  const double weights = experts * double(bytes_.w13 + bytes_.w13_scale + bytes_.w2 + bytes_.w2_scale);
  const double operations = 2.0 * double(tokens * c_.top_k) * 3 * double(c_.hidden) * double(c_.intermediate);
  const double floor = std::max(weights / gpu.bytes_per_second, operations / gpu.operations_per_second);
  std::printf("%6ld %7.0f %9.1f %9.1f %5.0f%% %6.0f %8.1f\n", long(tokens), experts, seconds * 1e6, floor * 1e6,
              100 * floor / seconds, weights / seconds * 1e-9, operations / seconds * 1e-12);
}

void print_kernel(const std::string& name, Layer& layer, const Ceilings& gpu, const std::vector<int64_t>& tokens) {
  std::printf("\nkernel %s\n%6s %7s %9s %9s %6s %6s %8s\n", name.c_str(), "tokens", "experts", "us", "floor us",
              "share", "GB/s", "TFLOP/s");
  for (const int64_t n : tokens) layer.print_times(n, gpu);
}

void time_kernels(const MoeConfig& shape, const Ceilings& gpu, const std::vector<int64_t>& tokens) {
  for (const PaddedShape& padded : padded_shapes(shape)) {
    const KernelFormat& format = *padded.format;
    if (const std::string refusal = moe_refusal(padded.config, format); !refusal.empty()) {
      std::printf("\nkernel %s: %s\n", format.name, refusal.c_str());
      continue;
    }
    Layer layer(padded.config, format);
    print_kernel(format.name, layer, gpu, tokens);
    if (format.cuda != CudaReader::marlin) continue;
    layer.avoid_wgmma();
    print_kernel("marlin, mma.sync only", layer, gpu, tokens);
  }
}

int64_t number_in(const char* text) {
  const int64_t n = std::atoll(text);
  if (n <= 0) throw std::invalid_argument(std::string(text) + " is not a number above 0");
  return n;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) throw std::invalid_argument("usage: mxfp4_moe_bench HIDDEN INTERMEDIATE EXPERTS TOP_K [TOKENS..]");
  MoeConfig shape;
  shape.hidden = number_in(argv[1]);
  shape.intermediate = number_in(argv[2]);
  shape.experts = number_in(argv[3]);
  shape.top_k = int(number_in(argv[4]));
  if (shape.top_k > shape.experts) throw std::invalid_argument("TOP_K is greater than EXPERTS");
  std::vector<int64_t> tokens;
  for (int i = 5; i < argc; i++) tokens.push_back(number_in(argv[i]));
  if (tokens.empty()) tokens = {1, 4, 16, 64, 256, 1024, 4096, 8192};
  cudaDeviceProp gpu;
  check_cuda(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
  if (gpu.major != 9) throw std::invalid_argument("these kernels are timed on a Hopper GPU");
  const Ceilings ceilings = measure_gpu(gpu);
  std::printf("%s: a copy moves %.0f GB/s (read + written), wgmma does %.0f TFLOP/s\n", gpu.name,
              ceilings.bytes_per_second * 1e-9, ceilings.operations_per_second * 1e-12);
  time_kernels(shape, ceilings, tokens);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
