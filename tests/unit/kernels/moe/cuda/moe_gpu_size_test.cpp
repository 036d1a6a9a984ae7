// Computes layers of published sizes on the GPU. In these, the kernels' ring buffers wrap around and the last row tile
// is partial. The layers are packed by this project's layouts and compared with the float64 reference. Skipped without
// a GPU.
#include <bit>
#include <catch2/catch.hpp>

#include "kernels/moe/cuda/moe_cuda.h"
#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_inputs.h"
#include "kernels/moe/moe_reference.h"
#include "kernels/moe/routing.h"
#include "tests/support/random_layer.h"

using namespace mxfp4;

namespace {

struct Batch {
  Routing routing;
  std::vector<float> x;
  std::vector<double> out;
};
std::vector<Batch> make_batches(const RandomLayer& layer) {
  std::vector<Batch> batches;
  for (int64_t tokens : {1, 9, 24, 50, 150}) {  // tokens per expert: at least one batch for every kernel
    RouterRule rule;
    rule.experts = layer.config.experts;
    rule.top_k = layer.config.top_k;
    Batch b;
    b.routing = route_random(rule, tokens, 3);
    b.x = moe_inputs(layer.config, layer.source, b.routing, 4);
    b.out = moe_reference(layer.config, layer.source, b.x, b.routing).out;
    batches.push_back(std::move(b));
  }
  return batches;
}

void check(CudaMoe& gpu, const std::vector<Batch>& batches) {
  for (const Batch& b : batches) {
    std::vector<uint16_t> x;
    for (float v : b.x) x.push_back(uint16_t(std::bit_cast<uint32_t>(v) >> 16));
    const MoeOutput output = gpu.forward(x, b.routing);
    const Comparison result = compare(b.out, output.out, 2.6e-3);
    CAPTURE(b.routing.tokens, result.relative_l2, result.not_finite);
    CHECK(result.right());
    CHECK(output.padded == 0);
    CHECK(gpu.forward(x, b.routing).out == output.out);
  }
}

}  // namespace

TEST_CASE("CUDA MoE: sizes of published models", "[gpu][moe]") {
  if (const std::string missing = moe_cuda_missing(kernel_format("flashinfer-sm90-v2")); !missing.empty()) {
    WARN("skipped: " << missing);
    return;
  }
  const bool gpt_oss = GENERATE(true, false);
  const RandomLayer layer(2, {gpt_oss ? 2880 : 4096, gpt_oss ? 2880 : 2048}, gpt_oss);
  const std::vector<Batch> batches = make_batches(layer);
  for (const SizedPacking& p : sized_packings) {
    const MoeConfig c = config_of(layer, p);
    CAPTURE(gpt_oss, p.format);
    const PackedRandom bytes(layer, p, c);
    const KernelFormat& format = kernel_format(p.format);
    const auto gpu = upload_moe(c, format, bytes.view());
    check(*gpu, batches);
    if (format.cuda == CudaReader::marlin) {
      gpu->avoid_wgmma();
      check(*gpu, batches);
    }
  }
}
