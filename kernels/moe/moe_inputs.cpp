#include "kernels/moe/moe_inputs.h"

#include <bit>
#include <cmath>
#include <random>

#include "kernels/moe/moe_reference.h"

namespace mxfp4 {

float round_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

std::vector<float> moe_inputs(const MoeConfig& config, const MoeSource& source, const Routing& routing, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(routing.tokens * config.hidden);
  for (float& value : x) value = normal(random);
  const W13Sample rms = sample_w13(config, source, x, routing);
  const double target = std::isfinite(config.limit) ? config.limit / 2 : 2;
  // Products and biases are independent, so their squares add. If biases alone exceed the target, products get the
  // whole target.
  const double products = rms.biases < target ? std::sqrt(target * target - rms.biases * rms.biases) : target;
  const double scale = rms.products > 0 && std::isfinite(rms.products) ? products / rms.products : 1;
  for (float& value : x) value = round_to_bf16(float(value * scale));
  return x;
}

}  // namespace mxfp4
