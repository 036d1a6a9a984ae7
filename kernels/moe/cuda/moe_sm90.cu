// The MoE products on Hopper words (FlashInfer SM90 v1 and v2, Humming, Triton Hopper): wgmma for many tokens, mma.sync
// for few. Marlin words also use wgmma here if there are many tokens. Compiled for sm_90a alone.
#include "kernels/moe/cuda/moe_launch.h"
#include "kernels/moe/cuda/moe_stream.cuh"
#include "kernels/moe/cuda/moe_wgmma.cuh"

namespace mxfp4 {
namespace {

template <OperandReader Reader, int kTokens, int kWarps>
void stream_tokens(const GemmArgs& args, bool gated, int max_tiles, cudaStream_t stream) {
  const dim3 grid(row_tiles(args, gated, 2), unsigned(max_tiles));
  launch(gated ? stream_kernel<Reader, kTokens, kWarps, true> : stream_kernel<Reader, kTokens, kWarps, false>, grid,
         kWarps * 32, StreamRing<Reader, kTokens, kWarps>::shared, stream, args);
}

template <OperandReader Reader, int kTokens>
void wgmma_tokens(const GemmArgs& args, bool gated, int max_tiles, cudaStream_t stream) {
  const dim3 grid(row_tiles(args, gated, wgmma_units), unsigned(max_tiles));
  launch(gated ? wgmma_kernel<Reader, kTokens, true> : wgmma_kernel<Reader, kTokens, false>, grid, wgmma_threads,
         WgmmaStage<Reader, kTokens>::shared, stream, args);
}

template <OperandReader Reader>
void launch_wgmma(const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles, cudaStream_t stream) {
  if (plan.tokens == 32) return wgmma_tokens<Reader, 32>(args, gated, max_tiles, stream);
  if (plan.tokens == 64) return wgmma_tokens<Reader, 64>(args, gated, max_tiles, stream);
  if (plan.tokens == 128) return wgmma_tokens<Reader, 128>(args, gated, max_tiles, stream);
  throw std::invalid_argument("no such wgmma kernel");
}

template <OperandReader Reader>
void launch_reader(const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles, cudaStream_t stream) {
  if (plan.kernel == MoeKernel::wgmma) return launch_wgmma<Reader>(args, plan, gated, max_tiles, stream);
  if (plan.tokens == 8 && few_blocks(args, gated, max_tiles))
    return stream_tokens<Reader, 8, 8>(args, gated, max_tiles, stream);
  if (plan.tokens == 8) return stream_tokens<Reader, 8, 4>(args, gated, max_tiles, stream);
  if (plan.tokens == 16) return stream_tokens<Reader, 16, 4>(args, gated, max_tiles, stream);
  throw std::invalid_argument("no such SM90 kernel");
}

/// Multiplies random registers by random tokens in shared memory repeatedly, to measure the peak rate of the tensor
/// cores.
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

}  // namespace

void launch_sm90(CudaReader reader, const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles,
                 cudaStream_t stream) {
  if (reader == CudaReader::marlin)
    launch_wgmma<MarlinReader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::humming)
    launch_reader<HummingReader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::humming_wgmma)
    launch_reader<HummingWgmmaReader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::flashinfer_v1)
    launch_reader<FlashinferV1Reader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::flashinfer_v2)
    launch_reader<FlashinferV2Reader>(args, plan, gated, max_tiles, stream);
  else
    launch_reader<TritonReader>(args, plan, gated, max_tiles, stream);
}

double measure_wgmma() {
  int device = 0;  // the one that is selected
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  if (properties.major != 9) return 0;
  const int blocks = properties.multiProcessorCount, steps = 20000;
  float* out = nullptr;
  check_cuda(cudaMalloc(&out, size_t(blocks) * 256 * sizeof(float)), "cudaMalloc");
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  double best = 0;
  for (int i = 0; i < 5; i++) {
    cudaEventRecord(begin);
    wgmma_chain<<<blocks, 256, 128 * 128>>>(steps, out);
    cudaEventRecord(end);
    check_cuda(cudaEventSynchronize(end), "wgmma_chain");
    float ms;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    const double rate = 2.0 * 64 * 128 * 16 * 8 * 2 * steps * blocks / (double(ms) * 1e-3);
    best = rate > best ? rate : best;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaFree(out);
  return best;
}

}  // namespace mxfp4
