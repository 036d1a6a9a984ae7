// Computes layers of published sizes on the GPU. In these, the kernels' ring buffers wrap around and the last row tile
// is partial. The layers are packed by this project's layouts and compared with the float64 reference. Skipped without
// a GPU.
#include <bit>
#include <catch2/catch.hpp>
#include <list>
#include <random>

#include "kernels/moe/cuda/moe_cuda.h"
#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_inputs.h"
#include "kernels/moe/moe_reference.h"
#include "kernels/moe/routing.h"
#include "kernels/pack/device.h"

using namespace mxfp4;

namespace {

/// Random codes, scales of 2^-9..2^-3, no biases.
struct RandomLayer {
  RandomLayer(int64_t hidden, int64_t intermediate, bool pairs, bool gpt_oss) : pairs(pairs) {
    config.experts = 2;
    config.top_k = 2;
    config.hidden = hidden;
    config.intermediate = intermediate;
    config.alpha = gpt_oss ? 1.702 : 1;
    config.beta = gpt_oss;
    config.limit = gpt_oss ? 7 : 10;
    for (int64_t e = 0; e < config.experts; ++e)
      source.push_back({matrix(intermediate, hidden), matrix(intermediate, hidden), matrix(hidden, intermediate)});
  }
  SourceMatrix matrix(int64_t n, int64_t k) {
    std::vector<uint8_t>& codes = bytes.emplace_back(size_t(n * k / 2));
    for (uint8_t& b : codes) b = uint8_t(random());
    std::vector<uint8_t>& scales = bytes.emplace_back(size_t(n * k / 32));
    for (uint8_t& b : scales) b = uint8_t(118 + random() % 7);
    return {n, k, {codes.data(), k / 2}, {scales.data(), k / 32}, {}};
  }
  MoeConfig config;
  MoeSource source;
  bool pairs;
  std::list<std::vector<uint8_t>> bytes;
  std::mt19937 random{1};
};

struct SizedPacking {
  const char* format;
  Layout codes, scales;
  int64_t hidden, intermediate;  // padded to multiples of these
  bool up_first_halves = false;  // otherwise in loaded order
};
const SizedPacking sized_packings[] = {
    {"marlin", MarlinCodes{}, MarlinScales{}, 256, 128},
    {"flashinfer-sm90-v1", FlashinferSm90V1Codes{}, FlashinferSm90V1Scales{}, 128, 128, true},
    {"flashinfer-sm90-v2", FlashinferSm90V2Codes{}, FlashinferSm90V2Scales{}, 128, 128, true},
    {"triton-hopper-a", TritonHopperCodesA{}, TritonHopperScalesW8{}, 1, 32},
    {"triton-hopper-c", TritonHopperCodesC{}, TritonHopperScalesW8{}, 1, 64},
};

MoeConfig config_of(const RandomLayer& layer, const SizedPacking& p) {
  MoeConfig c = layer.config;
  c.padded_hidden = round_up(c.hidden, p.hidden);
  c.padded_intermediate = round_up(c.intermediate, p.intermediate);
  c.w13_block = layer.pairs && !p.up_first_halves;
  c.w13_up_first = p.up_first_halves;
  return c;
}

void append(std::vector<uint8_t>& to, const Layout& layout, const Matrix& matrix) {
  const size_t size = to.size();
  to.resize(size + size_t(packed_bytes(layout, matrix.padded)));
  const PackItem item{layout, matrix, to.data() + size};
  open_cpu()->pack({&item, 1});
}

struct Packed {
  std::vector<uint8_t> w13, w13_scale, w2, w2_scale;
  Packed(const RandomLayer& layer, const SizedPacking& p, const MoeConfig& c) {
    const auto add = [&](std::vector<uint8_t>& to, const Layout& layout, const SourceRows& a, const SourceRows* b,
                         Shape real, Shape padded) {
      Matrix m;
      m.views = b ? 2 : 1;
      m.view[0] = {a.data, a.stride};
      m.real = real;
      m.padded = padded;
      if (b) m.view[1] = {b->data, b->stride}, m.order = {c.w13_block, c.w13_up_first};
      append(to, layout, m);
    };
    const int64_t h = c.hidden, i = c.intermediate, ph = c.padded_hidden, pi = c.padded_intermediate;
    for (const SourceExpert& e : layer.source) {
      add(w13, p.codes, e.gate.codes, &e.up.codes, {i, h / 2}, {2 * pi, ph / 2});
      add(w13_scale, p.scales, e.gate.scales, &e.up.scales, {i, h / 32}, {2 * pi, ph / 32});
      add(w2, p.codes, e.down.codes, nullptr, {h, i / 2}, {ph, pi / 2});
      add(w2_scale, p.scales, e.down.scales, nullptr, {h, i / 32}, {ph, pi / 32});
    }
  }
};

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
  RandomLayer layer(gpt_oss ? 2880 : 4096, gpt_oss ? 2880 : 2048, gpt_oss, gpt_oss);
  const std::vector<Batch> batches = make_batches(layer);
  for (const SizedPacking& p : sized_packings) {
    const MoeConfig c = config_of(layer, p);
    CAPTURE(gpt_oss, p.format);
    const Packed bytes(layer, p, c);
    const KernelFormat& format = kernel_format(p.format);
    const auto gpu = upload_moe(c, format,
                                {bytes.w13.data(), bytes.w13_scale.data(), nullptr, bytes.w2.data(),
                                 bytes.w2_scale.data(), nullptr, nullptr, nullptr});
    check(*gpu, batches);
    if (format.cuda == CudaReader::marlin) {
      gpu->avoid_wgmma();
      check(*gpu, batches);
    }
  }
}
