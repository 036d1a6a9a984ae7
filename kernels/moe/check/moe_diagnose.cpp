#include "kernels/moe/check/moe_diagnose.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/hd.h"
#include "kernels/moe/check/moe_mistakes.h"
#include "kernels/moe/cpu/moe_cpu.h"
#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_reference.h"

namespace mxfp4 {
namespace {

std::vector<double> result_of(const MoeCase& layer, const Reading& reading) {
  std::vector<double> sum(layer.x.size(), 0.0);
  for (const MoeShard& shard : layer.shards) {
    const MoeReference part = moe_reference(shard.config, shard.source, layer.x, shard.routing, reading);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.out[i];
  }
  return sum;
}

/// Whether another format would take the same tensors: another version of the layout.
bool takes(const KernelFormat& other, const KernelFormat& own, int64_t n, int64_t k) {
  return other.code_bytes(n, k) == own.code_bytes(n, k) && other.scale_bytes(n, k) == own.scale_bytes(n, k) &&
         n % other.rows == 0 && k % other.columns == 0;
}
bool takes(const KernelFormat& other, const KernelFormat& own, const MoeShard& shard) {
  const MoeConfig& c = shard.config;
  return other.read != own.read && takes(other, own, 2 * c.padded_intermediate, c.padded_hidden) &&
         takes(other, own, c.padded_hidden, c.padded_intermediate) &&
         (!shard.packed.w13_bias || bias_element_bytes(other.bias) == bias_element_bytes(own.bias));
}

/// The first columns of row 0 of w2 of one of the shard's experts, as the format reads it.
std::vector<float> packed_row(const KernelFormat& format, const MoeShard& shard, int64_t expert) {
  const int64_t n = shard.config.padded_hidden, k = shard.config.padded_intermediate;
  const PackedMatrix w2{shard.packed.w2 + expert * format.code_bytes(n, k),
                        shard.packed.w2_scale + expert * format.scale_bytes(n, k), n, k,
                        shard.packed.w2_residual ? shard.packed.w2_residual[expert] / format.residual : 1.0f};
  const int64_t width = round_up(shard.config.intermediate, format.columns);
  std::vector<float> block(format.rows * width);
  format.read(w2, 0, 0, width, block.data());
  block.resize(shard.config.intermediate);
  return block;
}

bool is_row_of(const std::vector<float>& row, const SourceMatrix& down, double tolerance) {
  std::vector<double> want(down.k);
  dequantise_row(down, 0, {}, want);
  const size_t columns = std::min(row.size(), want.size());
  return compare(std::span(want).first(columns), std::span(row).first(columns), tolerance).right();
}

/// Names an expert or a rank whose w2 is at the place of another; empty if all are at their places or nothing is known.
std::string find_misplaced(const MoeCase& layer) {
  const double tolerance = layer.format->tolerance;
  for (size_t rank = 0; rank < layer.shards.size(); ++rank)
    for (int64_t e = 0; e < layer.shards[rank].config.experts; ++e) {
      const std::vector<float> row = packed_row(*layer.format, layer.shards[rank], e);
      if (is_row_of(row, layer.shards[rank].source[e].down, tolerance)) continue;
      for (size_t other = 0; other < layer.shards.size(); ++other)
        for (size_t f = 0; f < layer.shards[other].source.size(); ++f) {
          if (!is_row_of(row, layer.shards[other].source[f].down, tolerance)) continue;
          if (other != rank)
            return "stale rank: rank " + std::to_string(rank) + " holds what belongs to rank " + std::to_string(other);
          return "experts are in another order: expert " + std::to_string(f) + " is in the place of expert " +
                 std::to_string(e);
        }
    }
  return {};
}

constexpr double least_explained = 0.9;         // of the error beyond the kernel's own rounding
constexpr double least_explained_of_all = 0.3;  // of the whole error
constexpr int64_t sampled_tokens = 4;
constexpr double sample_slack = 4;  // on few tokens the error may be larger than on all

/// A layer, the kernel's result for it and the right one.
struct Evidence {
  MoeCase layer;
  std::vector<float> result;
  std::vector<double> right;

  int64_t hidden() const { return layer.shards.front().config.hidden; }
  int64_t tokens() const { return layer.shards.front().routing.tokens; }
};

double squared_distance(std::span<const double> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

/// The tokens whose results are most wrong.
std::vector<int64_t> worst_tokens(const Evidence& all) {
  std::vector<std::pair<double, int64_t>> errors;
  for (int64_t t = 0; t < all.tokens(); ++t) {
    const size_t at = size_t(t * all.hidden());
    const double error = squared_distance(std::span(all.right).subspan(at, size_t(all.hidden())),
                                          std::span(all.result).subspan(at, size_t(all.hidden())));
    errors.emplace_back(std::isfinite(error) ? -error : -std::numeric_limits<double>::infinity(), t);
  }
  std::sort(errors.begin(), errors.end());
  errors.resize(std::min(errors.size(), size_t(sampled_tokens)));
  std::vector<int64_t> tokens;
  for (const auto& [error, token] : errors) tokens.push_back(token);
  return tokens;
}

template <class T>
std::vector<T> pick(const std::vector<T>& rows, int64_t width, const std::vector<int64_t>& chosen) {
  std::vector<T> out;
  for (const int64_t row : chosen) out.insert(out.end(), rows.begin() + row * width, rows.begin() + (row + 1) * width);
  return out;
}

Evidence pick(const Evidence& all, const std::vector<int64_t>& tokens) {
  Evidence some = all;
  some.layer.x = pick(all.layer.x, all.hidden(), tokens);
  some.result = pick(all.result, all.hidden(), tokens);
  some.right = pick(all.right, all.hidden(), tokens);
  for (MoeShard& shard : some.layer.shards) {
    Routing& routing = shard.routing;
    routing.tokens = int64_t(tokens.size());
    routing.ids = pick(routing.ids, routing.top_k, tokens);
    routing.weights = pick(routing.weights, routing.top_k, tokens);
  }
  return some;
}

/// How well a mistake accounts for evidence.
using Explain = std::function<Diagnosis(const Evidence&)>;

Diagnosis explain_by(const Mistake& mistake, const Evidence& e) {
  MoeCase wrong = e.layer;
  if (mistake.change) mistake.change(wrong);
  const std::vector<double> want = result_of(wrong, mistake.reading);
  return {mistake.name, compare(want, e.result, 0).relative_l2,
          1 - squared_distance(want, e.result) / squared_distance(e.right, e.result)};
}

/// The diagnosis that the packed bytes are in the format `other`. It explains the result if a reader of that format
/// computes the right one.
Diagnosis explain_by(const KernelFormat& other, const Evidence& e) {
  const KernelFormat& own = *e.layer.format;
  const std::vector<float> read = packed_result_of(e.layer, other);
  return {std::string("the bytes are those of ") + other.name + ", not of " + own.name,
          compare(e.right, read, 0).relative_l2,
          1 - squared_distance(e.right, read) / squared_distance(e.right, packed_result_of(e.layer, own))};
}

std::vector<Explain> explanations(const Evidence& sample, double tolerance) {
  std::vector<Explain> list;
  for (const Mistake& mistake : likely_mistakes(sample.layer))
    list.push_back([mistake](const Evidence& e) { return explain_by(mistake, e); });
  const KernelFormat& own = *sample.layer.format;
  if (compare(sample.right, packed_result_of(sample.layer, own), tolerance).right()) return list;  // bytes are right
  for (const KernelFormat* other : kernel_formats())
    if (takes(*other, own, sample.layer.shards.front()))
      list.push_back([other](const Evidence& e) { return explain_by(*other, e); });
  return list;
}

/// A kernel that rounds may be wrong by `tolerance` without any mistake: the rest of the error has to be explained.
bool is_explained(const Diagnosis& d, double tolerance) {
  if (!(d.error <= tolerance)) return false;
  const double rounding = d.error > 0 ? tolerance * tolerance * (1 - d.explained) / (d.error * d.error) : 0;
  return d.explained >= std::max(least_explained_of_all, least_explained * (1 - rounding));
}

}  // namespace

std::vector<double> reference_of(const MoeCase& layer) { return result_of(layer, {}); }

std::vector<float> packed_result_of(const MoeCase& layer, const KernelFormat& format) {
  std::vector<float> sum(layer.x.size(), 0.0f);
  for (const MoeShard& shard : layer.shards) {
    const MoeCpuOutput part = moe_cpu(format, shard.config, shard.packed, layer.x, shard.routing);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.out[i];
  }
  return sum;
}

Diagnosis diagnose(const MoeCase& layer, std::span<const float> result, double tolerance) {
  if (std::string found = find_misplaced(layer); !found.empty()) return {found, 0, 1};
  const Evidence all{layer, {result.begin(), result.end()}, reference_of(layer)};
  const Evidence sample = pick(all, worst_tokens(all));
  Diagnosis best{{}, std::numeric_limits<double>::infinity(), 0};
  for (const Explain& explain : explanations(sample, tolerance)) {
    if (!is_explained(explain(sample), sample_slack * tolerance)) continue;
    const Diagnosis d = explain(all);
    if (is_explained(d, tolerance) && d.error < best.error) best = d;
  }
  return best;
}

}  // namespace mxfp4
