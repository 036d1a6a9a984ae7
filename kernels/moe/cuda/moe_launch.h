// The interface between the CUDA files of the MoE: the launches, and the small kernels around the two products.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/device_error.h"
#include "kernels/moe/cuda/moe_cuda.h"
#include "kernels/moe/cuda/moe_gemm.cuh"

namespace mxfp4 {

inline void check_cuda(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw DeviceError(std::string(call) + ": " + cudaGetErrorString(status));
}

/// stream: weights once through registers, few tokens. tile: mma.sync, many tokens. wgmma: many tokens on SM90.
enum class MoeKernel { stream, tile, wgmma };

/// The kernel of both products, and the maximum of tokens of one expert in a block.
struct MoePlan {
  MoeKernel kernel = MoeKernel::stream;
  int tokens = 8;
};
/// The fastest known for this many tokens per expert (tokens * top_k / experts).
MoePlan plan_moe(double tokens_per_expert, bool has_wgmma);

/// One grouped product; max_tiles bounds *args.tile_count.
void launch_marlin(const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles, cudaStream_t stream);
void launch_sm90(CudaReader reader, const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles,
                 cudaStream_t stream);

/// Launch with dynamic shared memory, from SM90 on overlapping the end of the kernel before it (wait_for_previous).
template <class... Args>
void launch(void (*kernel)(Args...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
            const std::type_identity_t<Args>&... args) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             "cudaFuncSetAttribute");
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = size_t(shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = major >= 9 ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args...), "launch of a MoE kernel");
}
/// Row tiles of `units` units each.
inline unsigned row_tiles(const GemmArgs& args, bool gated, int units) {
  const int rows = gated && args.act.halves ? args.w.n / 2 : args.w.n;
  const int per_tile = gated && args.act.halves ? units * 32 : units * 64;
  return unsigned((rows + per_tile - 1) / per_tile);
}

/// Whether the streaming kernel has so few blocks that more warps in each are faster.
inline bool few_blocks(const GemmArgs& args, bool gated, int max_tiles) {
  return int(row_tiles(args, gated, 2)) * max_tiles <= 256;
}

/// Counting sort of the slots (token * top_k + j) by expert, stable.
struct RouteArgs {
  const int* ids;         // [slots]; outside 0..experts-1: skipped
  const int* expert_map;  // [mapped]: replaces an id by the layer's, or by -1; null: ids are the layer's
  int mapped;
  int slots, top_k, experts, tile_tokens;
  int *rows, *position;  // [slots]: sorted position -> token; slot -> sorted position or -1
  TokenTile* tiles;      // an expert's tokens in equal parts, each a multiple of 8 and at most tile_tokens
  int* tile_count;
};
void launch_route(const RouteArgs& args, cudaStream_t stream);
inline int max_token_tiles(int slots, int experts, int tile_tokens) {
  const int full = experts + slots / tile_tokens;
  return slots < full ? slots : full;
}

/// out[token][column] = sum over j, in order, of weights[slot] * results[position[slot]][column].
struct SumArgs {
  const float* results;
  const int* position;
  const float* weights;
  int top_k, columns;
  __nv_bfloat16* out;
};
void launch_sum(const SumArgs& args, int tokens, cudaStream_t stream);
/// Rows of `from` elements to rows of `to`, zero filled.
void launch_pad(const __nv_bfloat16* in, int64_t rows, int from, int to, __nv_bfloat16* out, cudaStream_t stream);
/// A matrix's biases: n rows of each expert, which are stored as `stored`.
struct BiasRows {
  int64_t experts;
  int n, stored;
};
/// In row order as fp32.
void launch_bias(CudaReader reader, const void* in, const BiasRows& rows, float* out, cudaStream_t stream);
/// Largest byte of a device array; synchronous.
int largest_byte(const uint8_t* bytes, int64_t count);
}  // namespace mxfp4
