#include "kernels/moe/moe_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/moe/moe_simd.h"
#include "kernels/moe/routing.h"
#include "kernels/parallel.h"

namespace mxfp4 {
namespace {

MXFP4_EVERY_WIDTH double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Four dot products at once: the row is loaded once, and no sum waits for its own last addition.
MXFP4_EVERY_WIDTH void dot4(const double* row, std::array<const double*, 4> x, int64_t n, double* out) {
  const double *a = x[0], *b = x[1], *c = x[2], *d = x[3];
  double sum_a = 0, sum_b = 0, sum_c = 0, sum_d = 0;
#pragma omp simd reduction(+ : sum_a, sum_b, sum_c, sum_d)
  for (int64_t i = 0; i < n; ++i) {
    sum_a += row[i] * a[i];
    sum_b += row[i] * b[i];
    sum_c += row[i] * c[i];
    sum_d += row[i] * d[i];
  }
  out[0] = sum_a;
  out[1] = sum_b;
  out[2] = sum_c;
  out[3] = sum_d;
}

/// out[s] = the row times the activations in[slots[s] / slots_per_row], each as long as the row.
void multiply(const std::vector<double>& row, const std::vector<double>& in, const Slots& slots, int slots_per_row,
              std::vector<double>& out) {
  const int64_t n = int64_t(row.size()), count = int64_t(slots.size());
  const auto at = [&](int64_t s) { return in.data() + slots[s] / slots_per_row * n; };
  out.resize(slots.size());
  int64_t s = 0;
  for (; s + 4 <= count; s += 4) dot4(row.data(), {at(s), at(s + 1), at(s + 2), at(s + 3)}, n, &out[s]);
  for (; s < count; ++s) out[s] = dot(row.data(), at(s), n);
}

/// A row of gate or up; matrix is null for a pad row.
struct SourceRow {
  const SourceMatrix* matrix = nullptr;
  int64_t row = 0;
};

/// Position of row i of gate (or up) in w13, and back.
int64_t position(W13Order order, int64_t padded, bool up, int64_t i) {
  const int64_t block = order.block ? order.block : padded;
  return i / block * 2 * block + i % block + (up != order.up_first ? block : 0);
}

SourceRow row_at(const SourceExpert& expert, W13Order order, int64_t padded, int64_t position) {
  const int64_t block = order.block ? order.block : padded;
  const bool up = (position / block % 2 == 1) != order.up_first;
  const int64_t row = position / (2 * block) * block + position % block;
  const SourceMatrix& matrix = up ? expert.up : expert.gate;
  return row < matrix.n ? SourceRow{&matrix, row} : SourceRow{};
}

/// The true row that is read as row i of gate (or up) if the order of w13 is misread.
SourceRow row_found(const SourceExpert& expert, const Reading& reading, bool up, int64_t i) {
  const int64_t inter = expert.gate.n;
  return row_at(expert, reading.stored, inter, position(reading.taken_for, inter, up, i));
}

/// The row that the kernel uses as row i of gate (or up). It is another row if the kernel reads another order than was
/// written.
SourceRow row_read(const SourceExpert& expert, const Reading& reading, W13Order written, int64_t padded, bool up,
                   int64_t i) {
  if (written == reading.read) return row_found(expert, reading, up, i);
  const SourceRow row = row_at(expert, written, padded, position(reading.read, padded, up, i));
  return row.matrix ? row_found(expert, reading, row.matrix == &expert.up, row.row) : row;
}

/// The dequantised values and the bias of row i of gate (or up).
double load_w13_row(const MoeConfig& config, const SourceExpert& expert, const Reading& reading, bool up, int64_t i,
                    std::span<double> values) {
  const int64_t padded = std::max(config.padded_intermediate, config.intermediate);
  const SourceRow row = row_read(expert, reading, reading.rows, padded, up, i);
  if (row.matrix) {
    dequantise_row(*row.matrix, row.row, reading, values);
  } else {
    std::fill(values.begin(), values.end(), 0.0);
  }
  const SourceRow bias = row_read(expert, reading, reading.bias, padded, up, i);
  return bias.matrix ? bias_of(*bias.matrix, bias.row) : 0.0;
}

struct Tally {
  double squares = 0;
  int64_t clamped = 0, values = 0;
};

double activate(const MoeConfig& config, double gate, double up, Tally& tally) {
  tally.squares += gate * gate + up * up;
  tally.clamped += (gate > config.limit) + (std::abs(up) > config.limit);
  tally.values += 2;
  const double g = std::min(gate, config.limit), u = std::clamp(up, -config.limit, config.limit);
  return g / (1 + std::exp(-config.alpha * g)) * (u + config.beta);
}

/// Experts that have slots, and the slots of each.
struct Hit {
  int64_t expert;
  Slots slots;
};
std::vector<Hit> experts_hit(const Routing& routing, int64_t experts) {
  std::vector<Hit> hits;
  std::vector<Slots> slots = slots_of_experts(routing, experts);
  for (int64_t e = 0; e < experts; ++e)
    if (!slots[e].empty()) hits.push_back({e, std::move(slots[e])});
  return hits;
}

/// Calls work(expert hit, first row, end) for all rows of each, some rows at a time.
template <class Work>
void for_rows(size_t hits, int64_t rows, int64_t multiplications, Work work) {
  constexpr int64_t at_once = 16;
  const int64_t blocks = (rows + at_once - 1) / at_once;
  parallel_for(int64_t(hits) * blocks, multiplications, [&](int64_t job) {
    const int64_t first = job % blocks * at_once;
    work(size_t(job / blocks), first, std::min(first + at_once, rows));
  });
}

Tally sum_of(const std::vector<Tally>& tallies) {
  Tally sum;
  for (const Tally& t : tallies) {
    sum.squares += t.squares;
    sum.clamped += t.clamped;
    sum.values += t.values;
  }
  return sum;
}

/// The inputs of the reference, and the experts that have slots.
struct Layer {
  const MoeConfig& config;
  const MoeSource& source;
  const Routing& routing;
  const Reading& reading;
  std::vector<Hit> hits = experts_hit(routing, int64_t(source.size()));

  int64_t multiplications() const { return int64_t(routing.ids.size()) * config.intermediate * config.hidden; }
};

/// The activations of every slot. One tally for each row of each expert, so that the sum does not depend on threads.
std::vector<double> activations(const Layer& layer, std::span<const float> x, std::vector<Tally>& tallies) {
  const int64_t hidden = layer.config.hidden, inter = layer.config.intermediate;
  const std::vector<double> in(x.begin(), x.end());
  std::vector<double> act(layer.routing.ids.size() * inter);
  tallies.resize(layer.hits.size() * inter);
  for_rows(layer.hits.size(), inter, layer.multiplications(), [&](size_t h, int64_t first, int64_t end) {
    std::vector<double> gate(hidden), up(hidden), gates, ups;
    const SourceExpert& expert = layer.source[layer.hits[h].expert];
    const Slots& slots = layer.hits[h].slots;
    for (int64_t i = first; i < end; ++i) {
      const double gate_bias = load_w13_row(layer.config, expert, layer.reading, false, i, gate);
      const double up_bias = load_w13_row(layer.config, expert, layer.reading, true, i, up);
      multiply(gate, in, slots, layer.routing.top_k, gates);
      multiply(up, in, slots, layer.routing.top_k, ups);
      for (size_t s = 0; s < slots.size(); ++s)
        act[slots[s] * inter + i] =
            activate(layer.config, gates[s] + gate_bias, ups[s] + up_bias, tallies[h * inter + i]);
    }
  });
  return act;
}

/// The expert's result of every slot.
std::vector<double> results(const Layer& layer, const std::vector<double>& act) {
  const int64_t hidden = layer.config.hidden;
  std::vector<double> out(layer.routing.ids.size() * hidden);
  for_rows(layer.hits.size(), hidden, layer.multiplications(), [&](size_t h, int64_t first, int64_t end) {
    std::vector<double> down(layer.config.intermediate), downs;
    const auto& [expert, slots] = layer.hits[h];
    const SourceMatrix& matrix = layer.source[expert].down;
    for (int64_t n = first; n < end; ++n) {
      dequantise_row(matrix, n, layer.reading, down);
      multiply(down, act, slots, 1, downs);
      for (size_t s = 0; s < downs.size(); ++s) out[slots[s] * hidden + n] = downs[s] + bias_of(matrix, n);
    }
  });
  return out;
}

/// The weighted sum of each token's results.
std::vector<double> weighted(const Routing& routing, const std::vector<double>& results, int64_t hidden) {
  std::vector<double> out(routing.tokens * hidden, 0.0);
  for (size_t slot = 0; slot < routing.ids.size(); ++slot) {
    if (routing.ids[slot] < 0) continue;
    double* to = out.data() + slot / routing.top_k * hidden;
    for (int64_t n = 0; n < hidden; ++n) to[n] += routing.weights[slot] * results[slot * hidden + n];
  }
  return out;
}

}  // namespace

MoeReference moe_reference(const MoeConfig& config, const MoeSource& source, std::span<const float> x,
                           const Routing& routing, const Reading& reading) {
  const Layer layer{config, source, routing, reading};
  std::vector<Tally> tallies;
  const std::vector<double> act = activations(layer, x, tallies);
  MoeReference result;
  result.out = weighted(routing, results(layer, act), config.hidden);
  const Tally sum = sum_of(tallies);
  if (sum.values) {
    result.w13_rms = std::sqrt(sum.squares / sum.values);
    result.clamped = double(sum.clamped) / sum.values;
  }
  return result;
}

W13Sample sample_w13(const MoeConfig& config, const MoeSource& source, std::span<const float> x,
                     const Routing& routing) {
  const std::vector<double> in(x.begin(), x.end());
  const std::vector<Hit> hits = experts_hit(routing, int64_t(source.size()));
  const int64_t step = std::max<int64_t>(1, config.intermediate / 128);
  std::vector<W13Sample> squares(hits.size());
  std::vector<int64_t> counts(hits.size());
  const auto add = [&](size_t h) {
    std::vector<double> row(config.hidden);
    const size_t tokens = std::min<size_t>(4, hits[h].slots.size());
    for (const SourceMatrix* matrix : {&source[hits[h].expert].gate, &source[hits[h].expert].up})
      for (int64_t i = 0; i < matrix->n; i += step) {
        dequantise_row(*matrix, i, {}, row);
        squares[h].biases += tokens * std::pow(bias_of(*matrix, i), 2);
        counts[h] += tokens;
        for (size_t s = 0; s < tokens; ++s) {
          const double* token = in.data() + hits[h].slots[s] / routing.top_k * config.hidden;
          squares[h].products += std::pow(dot(token, row.data(), config.hidden), 2);
        }
      }
  };
  const int64_t rows = 2 * (config.intermediate / step + 1);
  parallel_for(int64_t(hits.size()), int64_t(hits.size()) * rows * config.hidden, [&](int64_t h) { add(size_t(h)); });
  W13Sample rms;
  const double count = double(std::accumulate(counts.begin(), counts.end(), int64_t(0)));
  for (const W13Sample& s : squares) {
    rms.products += s.products / count;
    rms.biases += s.biases / count;
  }
  return {std::sqrt(rms.products), std::sqrt(rms.biases)};
}

}  // namespace mxfp4
