#include "kernels/moe/cpu/moe_cpu.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/hd.h"
#include "kernels/moe/moe_simd.h"
#include "kernels/moe/routing.h"
#include "kernels/parallel.h"

namespace mxfp4 {
namespace {

// Columns decoded at a time: a block of 128 rows stays within 128 KB of cache.
constexpr int64_t chunk = 256;

MXFP4_EVERY_WIDTH float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Rows of activations, zero beyond the real columns, as wide as the blocks that read them.
struct Rows {
  int64_t width;
  std::vector<float> data;
  Rows(int64_t rows, int64_t columns) : width(round_up(columns, chunk)), data(rows * width) {}
  float* row(int64_t r) { return data.data() + r * width; }
  const float* row(int64_t r) const { return data.data() + r * width; }
};

/// One of the two products of the layer, all experts.
struct Product {
  const KernelFormat& format;
  const uint8_t *codes, *scales, *bias;
  const float* residual;
  int64_t n, k;

  PackedMatrix expert(int64_t e) const {
    return {codes + e * format.code_bytes(n, k), scales + e * format.scale_bytes(n, k), n, k,
            residual ? residual[e] / format.residual : 1.0f};
  }
  const uint8_t* expert_bias(int64_t e) const { return bias ? bias + e * format.bias_bytes(n) : nullptr; }
};

/// The products of one block of an expert's rows, from row n0: [slot][row].
std::vector<double> multiply_block(const Product& product, int64_t expert, int64_t n0, const Rows& in,
                                   const Slots& slots, int slots_per_row) {
  const KernelFormat& format = product.format;
  const PackedMatrix m = product.expert(expert);
  std::vector<double> sums(slots.size() * format.rows, 0.0);
  std::vector<float> block(format.rows * chunk);
  const int64_t end = round_up(m.k, format.columns);
  for (int64_t k0 = 0; k0 < end; k0 += chunk) {
    const int64_t k1 = std::min(end, k0 + chunk);
    format.read(m, n0, k0, k1, block.data());
    for (size_t s = 0; s < slots.size(); ++s) {
      const float* x = in.row(slots[s] / slots_per_row) + k0;
      for (int64_t r = 0; r < format.rows; ++r)
        sums[s * format.rows + r] += dot(x, block.data() + r * (k1 - k0), k1 - k0);
    }
  }
  return sums;
}

/// out[slot][n] = product of the slot's expert with row slot / slots_per_row of `in`, without bias.
void multiply(const Product& product, const std::vector<Slots>& slots, const Rows& in, int slots_per_row, Rows& out) {
  const KernelFormat& format = product.format;
  const int64_t blocks = product.n / format.rows;
  const auto multiply_one = [&](int64_t job) {
    const int64_t e = job / blocks, n0 = job % blocks * format.rows;
    if (slots[e].empty()) return;
    const std::vector<double> sums = multiply_block(product, e, n0, in, slots[e], slots_per_row);
    for (size_t s = 0; s < slots[e].size(); ++s)
      std::copy_n(sums.data() + s * format.rows, format.rows, out.row(slots[e][s]) + n0);
  };
  parallel_for(int64_t(slots.size()) * blocks, int64_t(out.data.size()) * product.k, multiply_one);
}

/// The rows of w13 that are gate and up of one intermediate column, and their biases.
struct GateUp {
  int64_t gate, up;
  float gate_bias = 0, up_bias = 0;
};
GateUp gate_up_at(const MoeConfig& config, const Product& w13, int64_t expert, int64_t i) {
  const int64_t inter = config.padded_intermediate, block = config.w13_block ? config.w13_block : inter;
  const int64_t first = i / block * 2 * block + i % block;
  GateUp at{first + (config.w13_up_first ? block : 0), first + (config.w13_up_first ? 0 : block)};
  if (const uint8_t* bias = w13.expert_bias(expert)) {
    const bool halves = w13.format.bias_in_halves;
    at.gate_bias = read_bias(w13.format.bias, bias, halves ? i : at.gate);
    at.up_bias = read_bias(w13.format.bias, bias, halves ? inter + i : at.up);
  }
  return at;
}

float activate(const MoeConfig& config, float gate, float up) {
  const float limit = float(config.limit);
  gate = gate > limit ? limit : gate;  // NaN passes
  up = up > limit ? limit : up < -limit ? -limit : up;
  return gate / (1 + std::exp(-float(config.alpha) * gate)) * (up + float(config.beta));
}

int64_t count_nonzero(const float* from, const float* to) {
  return std::count_if(from, to, [](float x) { return x != 0; });
}

/// Computes act[slot][i] from the result of w13. Returns the number of values in padded columns that are not 0.
int64_t activate_all(const MoeConfig& config, const Product& w13, const std::vector<Slots>& slots, const Rows& y,
                     Rows& act) {
  int64_t leaks = 0;
  for (size_t e = 0; e < slots.size(); ++e) {
    if (slots[e].empty()) continue;
    for (int64_t i = 0; i < config.padded_intermediate; ++i) {
      const GateUp at = gate_up_at(config, w13, e, i);
      for (const int64_t slot : slots[e]) {
        const float* row = y.row(slot);
        act.row(slot)[i] = activate(config, row[at.gate] + at.gate_bias, row[at.up] + at.up_bias);
      }
    }
    for (const int64_t slot : slots[e])
      leaks += count_nonzero(act.row(slot) + config.intermediate, act.row(slot) + config.padded_intermediate);
  }
  return leaks;
}

/// The weighted sum of a token's experts in double, over the padded width.
std::vector<double> combine(const MoeConfig& config, const Product& w2, const Routing& routing, int64_t token,
                            const Rows& y) {
  std::vector<double> sum(config.padded_hidden, 0.0);
  for (int64_t slot = token * routing.top_k; slot < (token + 1) * routing.top_k; ++slot) {
    if (routing.ids[slot] < 0) continue;
    const uint8_t* bias = w2.expert_bias(routing.ids[slot]);
    for (int64_t n = 0; n < config.padded_hidden; ++n) {
      const double b = bias ? read_bias(w2.format.bias, bias, n) : 0.0;
      sum[n] += routing.weights[slot] * (y.row(slot)[n] + b);
    }
  }
  return sum;
}

}  // namespace

MoeCpuOutput moe_cpu(const KernelFormat& format, const MoeConfig& config, const PackedMoe& packed,
                     std::span<const float> x, const Routing& routing) {
  const int64_t hidden = config.padded_hidden, inter = config.padded_intermediate, all = int64_t(routing.ids.size());
  const Product w13{format, packed.w13, packed.w13_scale, packed.w13_bias, packed.w13_residual, 2 * inter, hidden};
  const Product w2{format, packed.w2, packed.w2_scale, packed.w2_bias, packed.w2_residual, hidden, inter};
  if (w13.n % format.rows || w2.n % format.rows) throw std::invalid_argument("rows are no multiple of a block's");
  const std::vector<Slots> slots = slots_of_experts(routing, config.experts);

  Rows in(routing.tokens, hidden), act(all, inter), y13(all, 2 * inter), y2(all, hidden);
  for (int64_t t = 0; t < routing.tokens; ++t) std::copy_n(x.data() + t * config.hidden, config.hidden, in.row(t));
  MoeCpuOutput result;
  multiply(w13, slots, in, routing.top_k, y13);
  result.leaks = activate_all(config, w13, slots, y13, act);
  multiply(w2, slots, act, 1, y2);
  result.out.resize(routing.tokens * config.hidden);
  for (int64_t t = 0; t < routing.tokens; ++t) {
    const std::vector<double> sum = combine(config, w2, routing, t, y2);
    std::copy_n(sum.data(), config.hidden, result.out.data() + t * config.hidden);
    result.leaks += std::count_if(sum.begin() + config.hidden, sum.end(), [](double v) { return v != 0; });
  }
  return result;
}

}  // namespace mxfp4
