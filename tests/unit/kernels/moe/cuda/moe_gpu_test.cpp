// Computes golden layers on the GPU, whose packed bytes were made outside this project, and compares them with the
// float64 reference. Skipped without a GPU.
#include <bit>
#include <catch2/catch.hpp>
#include <iostream>

#include "kernels/moe/cuda/moe_cuda.h"
#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_reference.h"
#include "tests/support/golden_layer.h"

using namespace mxfp4;

namespace {

std::vector<uint16_t> bf16_bits(const std::vector<float>& x) {
  std::vector<uint16_t> bits;
  for (float v : x) bits.push_back(uint16_t(std::bit_cast<uint32_t>(v) >> 16));
  return bits;
}

/// Sends every token to both experts, and some to an expert of another rank.
Routing routing_of(const GoldenLayer& layer, int64_t tokens) {
  RouterRule rule;
  rule.experts = layer.config.experts;
  rule.top_k = layer.config.top_k;
  rule.scaling = golden_routed_scaling;
  Routing routing = route_random(rule, tokens, uint64_t(tokens));
  for (size_t i = 7; i < routing.ids.size(); i += 11) routing.ids[i] = -1;
  return routing;
}

void check_sizes(const GoldenLayer& layer, const Packing& packing, const MoeConfig& c, const KernelFormat& format) {
  const MoeBytes bytes = moe_bytes(c, format);
  const bool fc = std::string(packing.tag).find("cutlass") != std::string::npos;
  const auto size = [&](const std::string& name) { return layer.golden.find(packing.tag + ("." + name))->bytes; };
  CHECK(size(fc ? "fc1_expert_weights" : "w13") == bytes.w13 * c.experts);
  CHECK(size(fc ? "fc1_scales" : "w13_scale") == bytes.w13_scale * c.experts);
  CHECK(size(fc ? "fc2_expert_weights" : "w2") == bytes.w2 * c.experts);
  CHECK(size(fc ? "fc2_scales" : "w2_scale") == bytes.w2_scale * c.experts);
}

/// The result is rounded to bf16 one to three times (activation, output), with an error of about 1.5e-3 each time. The
/// engines' own kernels have 2.5e-3 to 5.5e-3. A single token is a small sample.
double tolerance(int64_t tokens) { return tokens < 16 ? 3e-3 : 2.5e-3; }

/// Computes at least one batch for every kernel of the format. Returns the largest error.
double check_batches(const GoldenLayer& layer, CudaMoe& gpu) {
  double worst = 0;
  for (int64_t tokens : {1, 8, 16, 40, 75, 100, 256}) {
    const Routing routing = routing_of(layer, tokens);
    const std::vector<float> x = moe_inputs(layer.config, layer.source, routing, 2);
    const MoeReference reference = moe_reference(layer.config, layer.source, x, routing);
    const MoeOutput output = gpu.forward(bf16_bits(x), routing), again = gpu.forward(bf16_bits(x), routing);
    const Comparison result = compare(reference.out, output.out, tolerance(tokens));
    CAPTURE(tokens, result.relative_l2, result.not_finite);
    CHECK(result.right());
    CHECK(output.padded == 0);
    CHECK(output.out == again.out);
    worst = std::max(worst, result.relative_l2);
  }
  return worst;
}

}  // namespace

TEST_CASE("CUDA MoE: golden layers as the float64 reference has them", "[gpu][moe]") {
  for (const char* file : golden_layers) {
    const GoldenLayer layer(file);
    for (const Packing& packing : packings) {
      const KernelFormat& format = kernel_format(packing.format);
      if (format.cuda == CudaReader::none || !layer.packed(packing.tag).w13) continue;
      const MoeConfig c = config_of(layer, packing);
      CAPTURE(file, packing.tag);
      check_sizes(layer, packing, c, format);
      if (const std::string missing = moe_cuda_missing(format); !missing.empty()) {
        WARN("skipped: " << missing);
        continue;
      }
      const auto gpu = upload_moe(c, format, layer.packed(packing.tag));
      double worst = check_batches(layer, *gpu);
      if (format.cuda == CudaReader::marlin) {
        gpu->avoid_wgmma();
        worst = std::max(worst, check_batches(layer, *gpu));
      }
      std::cout << file << " " << packing.tag << ": relative L2 error up to " << worst << "\n";
    }
  }
}

TEST_CASE("CUDA MoE: bytes of another FlashInfer generation are wrong", "[gpu][moe]") {
  if (const std::string missing = moe_cuda_missing(kernel_format("flashinfer-sm90-v2")); !missing.empty()) {
    WARN("skipped: " << missing);
    return;
  }
  const GoldenLayer layer(golden_layers[0]);
  const Packing& v1 = packing_of("flashinfer_cutlass_sm90_v1");
  const Routing routing = routing_of(layer, 16);
  const std::vector<float> x = moe_inputs(layer.config, layer.source, routing, 2);
  const MoeReference reference = moe_reference(layer.config, layer.source, x, routing);
  const auto gpu = upload_moe(config_of(layer, v1), kernel_format("flashinfer-sm90-v2"), layer.packed(v1.tag));
  CHECK(compare(reference.out, gpu->forward(bf16_bits(x), routing).out, 0.1).relative_l2 > 0.5);
}
