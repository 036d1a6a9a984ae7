#include "kernels/moe/moe_reference.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_inputs.h"
#include "tests/support/golden_layer.h"

using namespace mxfp4;

TEST_CASE("E2M1 and E8M0 have the values of the OCP text") {
  const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (unsigned code = 0; code < 16; ++code) CHECK(code_value(code) == (code < 8 ? 1 : -1) * e2m1[code % 8]);
  for (int byte = 0; byte < 255; ++byte) CHECK(scale_value(uint8_t(byte)) == std::pow(2.0, byte - 127));
  CHECK(std::isnan(scale_value(255)));
  const uint8_t one_and_a_half[2] = {0xC0, 0x3F};
  CHECK(bf16_value(one_and_a_half) == 1.5);
}

namespace {

/// An expert of 32 x 32. Row r of gate, up and down has `codes[part]` at column r and zeros elsewhere.
struct Diagonal {
  std::vector<uint8_t> codes[3], scales[3], bias;
  MoeConfig config;
  MoeSource source;
  Diagonal(uint8_t gate, uint8_t up, uint8_t down) {
    const uint8_t code[3] = {gate, up, down};
    for (int p = 0; p < 3; ++p) {
      codes[p].assign(32 * 16, 0), scales[p].assign(32, 128);
      for (int r = 0; r < 32; ++r) codes[p][r * 16 + r / 2] = uint8_t(code[p] << (r % 2 * 4));
    }
    for (int r = 0; r < 32; ++r) bias.insert(bias.end(), {0x80, 0x3F});  // 1.0
    const auto matrix = [&](int p) { return SourceMatrix{32, 32, {codes[p].data(), 16}, {scales[p].data(), 1}, {}}; };
    source = {{matrix(0), matrix(1), matrix(2)}};
    config.experts = 1;
    config.hidden = config.padded_hidden = 32;
    config.intermediate = config.padded_intermediate = 32;
  }
};

}  // namespace

TEST_CASE("the reference is the layer that one computes by hand") {
  Diagonal layer(2, 4, 5);  // 1, 2, 3, each times a scale of 2: gate 2x, up 4x, down 6a
  const Routing routing{1, 1, {0}, {0.5f}};
  std::vector<float> x(32, 0.0f);
  x[3] = 1;
  x[30] = -2;
  const auto silu = [](double g, double alpha) { return g / (1 + std::exp(-alpha * g)); };
  MoeReference r = moe_reference(layer.config, layer.source, x, routing);
  CHECK(r.out[3] == Approx(0.5 * 6 * silu(2, 1) * 4));
  CHECK(r.out[30] == Approx(0.5 * 6 * silu(-4, 1) * -8));
  CHECK(r.out[0] == 0);
  CHECK(r.w13_rms == Approx(std::sqrt((4 + 16 + 16 + 64) / 64.0)));
  CHECK(r.clamped == 0);

  // Gate is clamped from above only, up on both sides.
  layer.config.limit = 3;
  layer.config.alpha = 1.702;
  layer.config.beta = 1;
  r = moe_reference(layer.config, layer.source, x, routing);
  CHECK(r.out[3] == Approx(0.5 * 6 * silu(2, 1.702) * (3 + 1)));
  CHECK(r.out[30] == Approx(0.5 * 6 * silu(-4, 1.702) * (-3 + 1)));
  CHECK(r.clamped == 2 / 64.0);

  // Biases are added before the activation and before the routing weights.
  layer.source[0].up.bias = layer.source[0].down.bias = {layer.bias.data(), 2};
  r = moe_reference(layer.config, layer.source, x, routing);
  CHECK(r.out[30] == Approx(0.5 * (6 * silu(-4, 1.702) * (-3 + 1) + 1)));
  CHECK(r.out[0] == Approx(0.5));
}

TEST_CASE("an expert of another rank contributes nothing") {
  Diagonal layer(2, 4, 5);
  const std::vector<float> x(32, 1.0f);
  const MoeReference one = moe_reference(layer.config, layer.source, x, {1, 2, {0, -1}, {0.5f, 0.5f}});
  const MoeReference both = moe_reference(layer.config, layer.source, x, {1, 2, {0, 0}, {0.5f, 0.5f}});
  for (int i = 0; i < 32; ++i) CHECK(2 * one.out[i] == Approx(both.out[i]));
}

TEST_CASE("inputs bring w13 to half of the limit, and are exact in bf16") {
  for (const char* file : golden_layers) {
    GoldenLayer layer(file);
    const Routing routing = golden_routing(layer);
    for (const double limit : {layer.config.limit, std::numeric_limits<double>::infinity()}) {
      layer.config.limit = limit;
      const std::vector<float> x = moe_inputs(layer.config, layer.source, routing, 7);
      for (const float value : x) CHECK(round_to_bf16(value) == value);
      const MoeReference r = moe_reference(layer.config, layer.source, x, routing);
      CHECK(r.w13_rms == Approx(std::isfinite(limit) ? limit / 2 : 2).epsilon(0.2));
      CHECK((r.clamped > 0.02 && r.clamped < 0.1) == std::isfinite(limit));
      CHECK(x != moe_inputs(layer.config, layer.source, routing, 8));
    }
  }
}

TEST_CASE("bf16 rounds to nearest, ties to even") {
  CHECK(round_to_bf16(1 + 1 / 256.0f) == 1.0f);
  CHECK(round_to_bf16(1 + 3 / 256.0f) == 1 + 4 / 256.0f);
  CHECK(round_to_bf16(-1.75f) == -1.75f);
}

TEST_CASE("compare measures what it says") {
  const double want[] = {3, 4};
  const float same[] = {3, 4}, off[] = {3, 4.5f}, opposite[] = {-3, -4}, broken[] = {3, NAN};
  CHECK(compare(want, same, 0).right());
  CHECK(compare(want, off, 0.2).relative_l2 == Approx(0.1));
  CHECK(compare(want, off, 0.2).max_abs == Approx(0.5));
  CHECK(compare(want, off, 0.2).right());
  CHECK_FALSE(compare(want, off, 0.05).right());
  CHECK(compare(want, opposite, 1).cosine == Approx(-1));
  CHECK(compare(want, broken, 1e9).not_finite == 1);
  CHECK_FALSE(compare(want, broken, 1e9).right());
  const double zero[] = {0, 0};
  CHECK_FALSE(compare(zero, same, 1e9).right());
}
