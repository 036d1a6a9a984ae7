// The small kernels around the two products of the MoE.
#include "kernels/moe/cuda/moe_launch.h"

namespace mxfp4 {
namespace {

constexpr int route_threads = 1024, route_warps = route_threads / 32;

/// Exclusive prefix sum over the block; shared: one word per warp.
__device__ uint64_t exclusive_scan(uint64_t value, uint64_t* shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t sum = value;
  for (int d = 1; d < 32; d *= 2) {
    const uint64_t other = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += other;
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  uint64_t before = lane < warp ? shared[lane] : 0;
  for (int d = 16; d > 0; d /= 2) before += __shfl_xor_sync(~0u, before, d);
  return before + sum - value;
}

/// A warp's slots [begin, end) in order, eight rounds of ids fetched ahead: act(slot, id or -1).
template <class Act>
__device__ void for_each_slot(const RouteArgs& a, int begin, int end, Act act) {
  const int lane = threadIdx.x % 32;
  for (int base = begin; base < end; base += 256) {
    int id[8];
#pragma unroll
    for (int r = 0; r < 8; r++) {
      const int slot = base + r * 32 + lane;
      id[r] = slot < end ? a.ids[slot] : -1;
      if (a.expert_map) id[r] = id[r] >= 0 && id[r] < a.mapped ? a.expert_map[id[r]] : -1;
      if (id[r] >= a.experts) id[r] = -1;
    }
#pragma unroll
    for (int r = 0; r < 8; r++) act(base + r * 32 + lane, max(id[r], -1));
  }
}

/// Makes the tiles of each expert, one thread an expert. count: of slots, by warp; on return each warp's first place.
__device__ __forceinline__ void place_experts(const RouteArgs& a, int warps, int* count, uint64_t* scan) {
  const int e = threadIdx.x;
  int total = 0;
  if (e < a.experts)
    for (int w = 0; w < warps; w++) {
      const int c = count[w * a.experts + e];
      count[w * a.experts + e] = total;
      total += c;
    }
  const int tiles = (total + a.tile_tokens - 1) / a.tile_tokens;
  const uint64_t before = exclusive_scan(uint64_t(total) << 32 | uint32_t(tiles), scan);
  const int first = int(before >> 32), first_tile = int(uint32_t(before));
  if (e < a.experts) {
    for (int w = 0; w < warps; w++) count[w * a.experts + e] += first;
    const int size = tiles ? ((total + tiles - 1) / tiles + 7) / 8 * 8 : 0;
    for (int i = 0; i < tiles; i++)
      a.tiles[first_tile + i] = {e, first + min(i * size, total), min(size, max(total - i * size, 0))};
  }
  if (e == route_threads - 1) *a.tile_count = first_tile + tiles;
}

/// One block. Each warp takes a contiguous part of the slots, counts it, and after the scan places it in order.
__global__ void __launch_bounds__(route_threads) route_kernel(const RouteArgs a) {
  extern __shared__ int count[];  // [warp][expert]
  __shared__ uint64_t scan[route_warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = (a.slots + route_threads - 1) / route_threads * 32;
  const int begin = warp * part, end = min(begin + part, a.slots);
  const int warps = (a.slots + part - 1) / part;  // that have any
  int* mine = count + warp * a.experts;
  for (int i = threadIdx.x; i < warps * a.experts; i += route_threads) count[i] = 0;
  wait_for_previous();
  start_next();
  __syncthreads();

  for_each_slot(a, begin, end, [&](int, int id) {
    if (id >= 0) atomicAdd(&mine[id], 1);
  });
  __syncthreads();

  place_experts(a, warps, count, scan);
  __syncthreads();
  for_each_slot(a, begin, end, [&](int slot, int id) {
    const unsigned same = __match_any_sync(~0u, id), below = same & ((1u << lane) - 1);
    const int position = id < 0 ? -1 : mine[id] + __popc(below);
    __syncwarp();
    if (id >= 0 && !below) mine[id] += __popc(same);
    __syncwarp();
    if (slot >= end) return;
    a.position[slot] = position;
    if (position >= 0) a.rows[position] = slot / a.top_k;
  });
}

/// Eight columns per thread.
__global__ void sum_kernel(const SumArgs s) {
  const int column = int(blockIdx.y * blockDim.x + threadIdx.x) * 8;
  const int64_t token = blockIdx.x;
  wait_for_previous();
  start_next();
  if (column >= s.columns) return;
  float sum[8] = {};
#pragma unroll 4
  for (int j = 0; j < s.top_k; j++) {
    const int p = s.position[token * s.top_k + j];
    const float w = p < 0 ? 0 : s.weights[token * s.top_k + j];
    const float4* from = reinterpret_cast<const float4*>(s.results + int64_t(max(p, 0)) * s.columns + column);
    const float4 a = from[0], b = from[1];
    if (p < 0) continue;
    sum[0] += w * a.x;
    sum[1] += w * a.y;
    sum[2] += w * a.z;
    sum[3] += w * a.w;
    sum[4] += w * b.x;
    sum[5] += w * b.y;
    sum[6] += w * b.z;
    sum[7] += w * b.w;
  }
  __nv_bfloat162 r[4];
  for (int i = 0; i < 4; i++) r[i] = __floats2bfloat162_rn(sum[2 * i], sum[2 * i + 1]);
  *reinterpret_cast<uint4*>(s.out + token * s.columns + column) = *reinterpret_cast<uint4*>(r);
}

__global__ void pad_kernel(const __nv_bfloat16* in, int from, int to, __nv_bfloat16* out) {
  wait_for_previous();
  start_next();
  for (int c = threadIdx.x; c < to; c += blockDim.x)
    out[int64_t(blockIdx.x) * to + c] = c < from ? in[int64_t(blockIdx.x) * from + c] : __float2bfloat16(0);
}

template <class T, OperandReader Reader>
__global__ void bias_kernel(const T* in, BiasRows rows, float* out) {
  for (int i = threadIdx.x; i < rows.n; i += blockDim.x)
    out[int64_t(blockIdx.x) * rows.n + i] = float(in[int64_t(blockIdx.x) * rows.stored + Reader::bias_index(i)]);
}

__global__ void largest_kernel(const uint8_t* bytes, int64_t count, int* largest) {
  int most = 0;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x)
    most = max(most, int(bytes[i]));
  most = __reduce_max_sync(~0u, most);
  if (threadIdx.x % 32 == 0) atomicMax(largest, most);
}

}  // namespace

void launch_route(const RouteArgs& args, cudaStream_t stream) {
  const int bytes = route_warps * args.experts * int(sizeof(int));
  launch(route_kernel, dim3(1), route_threads, bytes, stream, args);
}

void launch_sum(const SumArgs& args, int tokens, cudaStream_t stream) {
  const int threads = 128;
  const dim3 grid(unsigned(tokens), unsigned((args.columns / 8 + threads - 1) / threads));
  launch(sum_kernel, grid, threads, 0, stream, args);
}

void launch_pad(const __nv_bfloat16* in, int64_t rows, int from, int to, __nv_bfloat16* out, cudaStream_t stream) {
  launch(pad_kernel, dim3(unsigned(rows)), 256, 0, stream, in, from, to, out);
}

void launch_bias(CudaReader reader, const void* in, const BiasRows& rows, float* out, cudaStream_t stream) {
  const auto* half = static_cast<const __nv_bfloat16*>(in);
  const auto blocks = unsigned(rows.experts);
  if (reader == CudaReader::marlin || reader == CudaReader::humming || reader == CudaReader::humming_wgmma)
    bias_kernel<__nv_bfloat16, MarlinReader><<<blocks, 256, 0, stream>>>(half, rows, out);
  else if (reader == CudaReader::triton_hopper)
    bias_kernel<float, TritonReader><<<blocks, 256, 0, stream>>>(static_cast<const float*>(in), rows, out);
  else
    bias_kernel<__nv_bfloat16, FlashinferV2Reader><<<blocks, 256, 0, stream>>>(half, rows, out);
  check_cuda(cudaGetLastError(), "bias_kernel");
}

int largest_byte(const uint8_t* bytes, int64_t count) {
  int* device = nullptr;
  int largest = 0;
  check_cuda(cudaMalloc(&device, sizeof(int)), "cudaMalloc");
  cudaError_t status = cudaMemset(device, 0, sizeof(int));
  if (status == cudaSuccess) {
    largest_kernel<<<1024, 256>>>(bytes, count, device);
    status = cudaMemcpy(&largest, device, sizeof(int), cudaMemcpyDeviceToHost);
  }
  cudaFree(device);
  check_cuda(status, "largest_kernel");
  return largest;
}

}  // namespace mxfp4
