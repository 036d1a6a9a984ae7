// Random MoE layers of any size, and their packed tensors in the layouts that CUDA kernels read.
#pragma once

#include <list>
#include <random>
#include <variant>
#include <vector>

#include "kernels/moe/moe_source.h"
#include "kernels/pack/device.h"

namespace mxfp4 {

struct LayerSizes {
  int64_t hidden, intermediate;
};

/// Random codes, scales of 2^-9..2^-3, and biases if asked for. Rows are pairs in GPT-OSS's layers.
struct RandomLayer {
  RandomLayer(int64_t experts, LayerSizes sizes, bool gpt_oss, bool biases = false) : pairs(gpt_oss), biases(biases) {
    config.experts = experts;
    config.top_k = 2;
    config.hidden = sizes.hidden;
    config.intermediate = sizes.intermediate;
    config.alpha = gpt_oss ? 1.702 : 1;
    config.beta = gpt_oss;
    config.limit = gpt_oss ? 7 : 10;
    const int64_t h = sizes.hidden, i = sizes.intermediate;
    for (int64_t e = 0; e < experts; ++e) source.push_back({matrix(i, h), matrix(i, h), matrix(h, i)});
  }
  SourceMatrix matrix(int64_t n, int64_t k) {
    std::vector<uint8_t>& codes = bytes.emplace_back(size_t(n * k / 2));
    for (uint8_t& b : codes) b = uint8_t(random());
    std::vector<uint8_t>& scales = bytes.emplace_back(size_t(n * k / 32));
    for (uint8_t& b : scales) b = uint8_t(118 + random() % 7);
    SourceMatrix made{n, k, {codes.data(), k / 2}, {scales.data(), k / 32}, {}};
    if (!biases) return made;
    std::vector<uint8_t>& bias = bytes.emplace_back(size_t(2 * n));
    for (int64_t r = 0; r < n; ++r) {  // bf16 of +-0.5..2
      bias[size_t(2 * r)] = uint8_t(random());
      bias[size_t(2 * r + 1)] = uint8_t(0x3f | (random() & 0x80));
    }
    made.bias = {bias.data(), 2};
    return made;
  }
  MoeConfig config;
  MoeSource source;
  bool pairs, biases;
  std::list<std::vector<uint8_t>> bytes;
  std::mt19937 random{1};
};

struct SizedPacking {
  const char* format;
  Layout codes, scales, bias;
  int64_t hidden, intermediate;  // padded to multiples of these
  bool up_first_halves = false;  // otherwise in loaded order
};
inline const SizedPacking sized_packings[] = {
    {"marlin", MarlinCodes{}, MarlinScales{}, MarlinBias{}, 256, 128},
    {"flashinfer-sm90-v1", FlashinferSm90V1Codes{}, FlashinferSm90V1Scales{}, Plain{}, 128, 128, true},
    {"flashinfer-sm90-v2", FlashinferSm90V2Codes{}, FlashinferSm90V2Scales{}, Plain{}, 128, 128, true},
    {"triton-hopper-a", TritonHopperCodesA{}, TritonHopperScalesW8{}, Plain{}, 1, 32},
    {"triton-hopper-c", TritonHopperCodesC{}, TritonHopperScalesW8{}, Plain{}, 1, 64},
};

inline MoeConfig config_of(const RandomLayer& layer, const SizedPacking& p) {
  MoeConfig c = layer.config;
  c.padded_hidden = round_up(c.hidden, p.hidden);
  c.padded_intermediate = round_up(c.intermediate, p.intermediate);
  c.w13_block = layer.pairs && !p.up_first_halves;
  c.w13_up_first = p.up_first_halves;
  return c;
}

inline void append(std::vector<uint8_t>& to, const Layout& layout, const Matrix& matrix) {
  const size_t size = to.size();
  to.resize(size + size_t(packed_bytes(layout, matrix.padded)));
  const PackItem item{layout, matrix, to.data() + size};
  open_cpu()->pack({&item, 1});
}

/// All experts' packed tensors.
struct PackedRandom {
  std::vector<uint8_t> w13, w13_scale, w13_bias, w2, w2_scale, w2_bias;
  PackedRandom(const RandomLayer& layer, const SizedPacking& p, const MoeConfig& c) {
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
      if (!layer.biases) continue;
      const auto bias = [&](const SourceRows& rows) { return widened(rows, rows.data == e.down.bias.data ? h : i, p); };
      const std::vector<uint8_t> gate = bias(e.gate.bias), up = bias(e.up.bias), down = bias(e.down.bias);
      const int64_t size = std::holds_alternative<MarlinBias>(p.bias) ? 2 : 4;
      const SourceRows gates{gate.data(), size}, ups{up.data(), size}, downs{down.data(), size};
      add(w13_bias, p.bias, gates, &ups, {i, size}, {2 * pi, size});
      add(w2_bias, p.bias, downs, nullptr, {h, size}, {ph, size});
    }
  }
  PackedMoe view() const {
    const auto at = [](const std::vector<uint8_t>& v) { return v.empty() ? nullptr : v.data(); };
    return {at(w13), at(w13_scale), at(w13_bias), at(w2), at(w2_scale), at(w2_bias), nullptr, nullptr};
  }

 private:
  /// The rows' bf16 as the kernel keeps biases: bf16 for Marlin, else fp32.
  static std::vector<uint8_t> widened(const SourceRows& rows, int64_t n, const SizedPacking& p) {
    const bool bf16 = std::holds_alternative<MarlinBias>(p.bias);
    std::vector<uint8_t> out;
    for (int64_t r = 0; r < n; ++r) {
      if (!bf16) out.insert(out.end(), 2, 0);
      out.insert(out.end(), rows.row(r), rows.row(r) + 2);
    }
    return out;
  }
};

}  // namespace mxfp4
