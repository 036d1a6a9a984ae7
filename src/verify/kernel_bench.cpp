#include "src/verify/kernel_bench.h"

#include <algorithm>
#include <set>

#include "src/base/log.h"
#include "src/device/device_choice.h"
#include "src/packed/packed_checkpoint.h"
#include "src/verify/kernel_config.h"

namespace mxfp4 {

namespace {

KernelTimes time_kernel(const std::string& name, const MoeConfig& shape, CudaMoe& layer, const BenchOptions& options) {
  KernelTimes times{name, shape, {}};
  for (const int64_t tokens : options.tokens) times.batches.push_back(layer.time(tokens, 1));
  return times;
}

/// The shape of `options` with the padding of `backend`. If its kernel supports both row orders, gate and up are
/// halves.
MoeConfig shape_for(const Backend& backend, const BenchOptions& options) {
  MoeConfig c;
  c.experts = options.experts;
  c.hidden = options.hidden;
  c.intermediate = options.intermediate;
  c.top_k = int(options.top_k);
  const LayerSize padded = padded_size(backend, {c.hidden, c.intermediate});
  c.padded_hidden = padded.hidden;
  c.padded_intermediate = padded.intermediate;
  const W13Order order = backend.kernel->w13.value_or(W13Order{});
  c.w13_block = order.block;
  c.w13_up_first = order.up_first;
  return c;
}

bool has_cuda_kernel(const KernelFormat* format) { return format && format->cuda != CudaReader::none; }

/// Why the GPU cannot compute a layer of this shape; empty if it can.
std::string refusal_of(const MoeConfig& shape, const KernelFormat& format) {
  const std::string refusal = moe_refusal(shape, format);
  return refusal.empty() ? moe_cuda_missing(format) : refusal;
}

}  // namespace

double floor_microseconds(const MoeTiming& t, const GpuCeilings& gpu) {
  const double reading = t.weight_bytes / gpu.bytes_per_second;
  const double computing = gpu.operations_per_second > 0 ? t.operations / gpu.operations_per_second : 0;
  return 1e6 * std::max(reading, computing);
}

void select_bench_gpu(const DeviceOptions& device) {
  const DeviceChoice choice = choose_device(device);
  if (!choice.gpus.empty()) select_cuda(choice.gpus.front());
  const std::string missing = moe_cuda_missing(kernel_format("marlin"));
  if (!missing.empty()) fail(ErrorKind::device, "--bench times the CUDA kernels: {}", missing);
}

BenchReport bench_shape(const BenchOptions& options) {
  if (options.top_k > options.experts)
    fail(ErrorKind::usage, "--top-k {}: the layer has {} experts", options.top_k, options.experts);
  BenchReport report{measure_gpu(), {}};
  std::set<CudaReader> seen;
  for (const Backend* backend : backends()) {
    const KernelFormat* format = backend->kernel;
    if (!has_cuda_kernel(format) || backend->engine != std::string("vllm") || !seen.insert(format->cuda).second)
      continue;
    const MoeConfig shape = shape_for(*backend, options);
    if (const std::string refusal = refusal_of(shape, *format); !refusal.empty()) {
      note(fmt::format("kernel {}: {}", format->name, refusal));
      continue;
    }
    const auto layer = random_moe(shape, *format, 1, false);
    report.kernels.push_back(time_kernel(format->name, shape, *layer, options));
    if (format->cuda != CudaReader::marlin || report.gpu.operations_per_second == 0) continue;
    layer->avoid_wgmma();
    report.kernels.push_back(time_kernel("marlin, mma.sync only", shape, *layer, options));
  }
  if (report.kernels.empty()) fail(ErrorKind::usage, "no CUDA kernel supports a layer of this shape");
  return report;
}

BenchReport bench_sets(const PackedCheckpoint& p, const BenchOptions& options) {
  BenchReport report{measure_gpu(), {}};
  for (const PackedSet& set : p.sets) {
    const Plan& plan = set.plan;
    const KernelFormat* format = plan.backend->kernel;
    if (!has_cuda_kernel(format))
      fail(ErrorKind::device, "no CUDA kernel reads the layout of backend {}", plan.backend->name);
    const MoeLayer& layer = p.model.layers.front();
    MoeConfig shape = kernel_config(*plan.backend, p.model, layer, rank_size(*plan.backend, layer, plan.tp_size));
    shape.intermediate = (layer.intermediate + plan.tp_size - 1) / plan.tp_size;
    if (const std::string refusal = refusal_of(shape, *format); !refusal.empty())
      fail(ErrorKind::device, "kernel {} on cuda: {}", format->name, refusal);
    const auto random = random_moe(shape, *format, 1, p.model.bias);
    report.kernels.push_back(time_kernel(format->name, shape, *random, options));
  }
  return report;
}

Json to_json(const BenchReport& report) {
  Json kernels = Json::array();
  for (const KernelTimes& k : report.kernels) {
    Json batches = Json::array();
    for (const MoeTiming& t : k.batches)
      batches.push_back({{"tokens", t.tokens},
                         {"experts_hit", t.experts_hit},
                         {"microseconds", t.microseconds},
                         {"floor_microseconds", floor_microseconds(t, report.gpu)},
                         {"weight_bytes_per_second", t.weight_bytes / t.microseconds * 1e6},
                         {"operations_per_second", t.operations / t.microseconds * 1e6}});
    kernels.push_back({{"kernel", k.kernel},
                       {"hidden", k.shape.hidden},
                       {"intermediate", k.shape.intermediate},
                       {"experts", k.shape.experts},
                       {"top_k", k.shape.top_k},
                       {"batches", batches}});
  }
  return {{"gpu", report.gpu.name},
          {"copy_bytes_per_second", report.gpu.bytes_per_second},
          {"operations_per_second", report.gpu.operations_per_second},
          {"kernels", kernels}};
}

std::string to_text(const BenchReport& report) {
  const GpuCeilings& gpu = report.gpu;
  std::string text = fmt::format("{}: a copy moves {:.0f} GB/s (read + written), wgmma does {:.0f} TFLOP/s\n", gpu.name,
                                 gpu.bytes_per_second * 1e-9, gpu.operations_per_second * 1e-12);
  for (const KernelTimes& k : report.kernels) {
    text += fmt::format("\nkernel {}: hidden {}, intermediate {}, experts {}, top-{}\n", k.kernel, k.shape.hidden,
                        k.shape.intermediate, k.shape.experts, k.shape.top_k);
    text += fmt::format("{:>6} {:>7} {:>9} {:>9} {:>6} {:>6} {:>8}\n", "tokens", "experts", "us", "floor us", "share",
                        "GB/s", "TFLOP/s");
    for (const MoeTiming& t : k.batches) {
      const double floor = floor_microseconds(t, gpu);
      text += fmt::format("{:>6} {:>7} {:>9.1f} {:>9.1f} {:>5.0f}% {:>6.0f} {:>8.1f}\n", t.tokens, t.experts_hit,
                          t.microseconds, floor, 100 * floor / t.microseconds, t.weight_bytes / t.microseconds * 1e-3,
                          t.operations / t.microseconds * 1e-6);
    }
  }
  return text;
}

}  // namespace mxfp4
