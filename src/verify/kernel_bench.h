// verify --bench: the speed of the CUDA MoE kernels for the shapes of OUT's layers or for a given shape.
#pragma once

#include <string>
#include <vector>

#include "kernels/moe/cuda/moe_cuda.h"
#include "src/base/json.h"

namespace mxfp4 {

struct DeviceOptions;

struct PackedCheckpoint;

struct BenchOptions {
  bool run = false;
  int64_t hidden = 0, intermediate = 0, experts = 0, top_k = 0;  // without OUT
  std::vector<int64_t> tokens = {1, 4, 16, 64, 256, 1024, 4096, 8192};
};

/// One kernel at one shape: a time for each batch.
struct KernelTimes {
  std::string kernel;
  MoeConfig shape;
  std::vector<MoeTiming> batches;
};

struct BenchReport {
  GpuCeilings gpu;
  std::vector<KernelTimes> kernels;
};

/// The least time that the GPU's limits allow to read the weights of the chosen experts and to do the operations.
double floor_microseconds(const MoeTiming& timing, const GpuCeilings& gpu);

/// Selects the GPU to measure. Throws Error{device} if none can run the kernels.
void select_bench_gpu(const DeviceOptions& device);
/// Times every CUDA kernel that supports the shape of `options`, padded as vLLM pads it, without biases. Codes are
/// random.
BenchReport bench_shape(const BenchOptions& options);
/// Times the kernel of each of OUT's sets at the shape of its first layer on one rank, with biases if the model has
/// them. Codes are random.
BenchReport bench_sets(const PackedCheckpoint& packed, const BenchOptions& options);

Json to_json(const BenchReport& report);
std::string to_text(const BenchReport& report);

}  // namespace mxfp4
