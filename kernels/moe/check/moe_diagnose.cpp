#include "kernels/moe/check/moe_diagnose.h"

#include <algorithm>
#include <limits>

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

/// Whether another fragment would take the same tensors: another version of the layout.
bool takes(const Fragment& other, const Fragment& own, int64_t n, int64_t k) {
  return other.code_bytes(n, k) == own.code_bytes(n, k) && other.scale_bytes(n, k) == own.scale_bytes(n, k) &&
         n % other.rows == 0 && k % other.columns == 0;
}
bool takes(const Fragment& other, const Fragment& own, const MoeShard& shard) {
  const MoeConfig& c = shard.config;
  return other.read != own.read && takes(other, own, 2 * c.padded_intermediate, c.padded_hidden) &&
         takes(other, own, c.padded_hidden, c.padded_intermediate) &&
         (!shard.packed.w13_bias || bias_element_bytes(other.bias) == bias_element_bytes(own.bias));
}

/// The first columns of row 0 of w2 of one of the shard's experts, as the fragment reads it.
std::vector<float> packed_row(const Fragment& fragment, const MoeShard& shard, int64_t expert) {
  const int64_t n = shard.config.padded_hidden, k = shard.config.padded_intermediate;
  const PackedMatrix w2{shard.packed.w2 + expert * fragment.code_bytes(n, k),
                        shard.packed.w2_scale + expert * fragment.scale_bytes(n, k), n, k,
                        shard.packed.w2_residual ? shard.packed.w2_residual[expert] : 1.0f};
  const int64_t width = fragment::up(shard.config.intermediate, fragment.columns);
  std::vector<float> block(fragment.rows * width);
  fragment.read(w2, 0, 0, width, block.data());
  block.resize(shard.config.intermediate);
  return block;
}

bool is_row_of(const std::vector<float>& row, const SourceMatrix& down, double tolerance) {
  std::vector<double> want(down.k);
  dequantise_row(down, 0, {}, want);
  const size_t columns = std::min(row.size(), want.size());
  return compare(std::span(want).first(columns), std::span(row).first(columns), tolerance).right();
}

/// Names the expert or the rank whose w2 is in the place of another's; empty where all are in place or unknown.
std::string find_misplaced(const MoeCase& layer) {
  const double tolerance = layer.fragment->tolerance;
  for (size_t rank = 0; rank < layer.shards.size(); ++rank)
    for (int64_t e = 0; e < layer.shards[rank].config.experts; ++e) {
      const std::vector<float> row = packed_row(*layer.fragment, layer.shards[rank], e);
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

MoeCase first_tokens(MoeCase layer, int64_t tokens) {
  layer.x.resize(tokens * layer.shards.front().config.hidden);
  for (MoeShard& shard : layer.shards) {
    shard.routing.tokens = tokens;
    shard.routing.ids.resize(tokens * shard.routing.top_k);
    shard.routing.weights.resize(tokens * shard.routing.top_k);
  }
  return layer;
}

}  // namespace

std::vector<double> reference_of(const MoeCase& layer) { return result_of(layer, {}); }

std::vector<float> packed_result_of(const MoeCase& layer, const Fragment& fragment) {
  std::vector<float> sum(layer.x.size(), 0.0f);
  for (const MoeShard& shard : layer.shards) {
    const MoeCpuOutput part = moe_cpu(fragment, shard.config, shard.packed, layer.x, shard.routing);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.out[i];
  }
  return sum;
}

Diagnosis diagnose(const MoeCase& whole, std::span<const float> result, double tolerance, int64_t tokens) {
  if (std::string found = find_misplaced(whole); !found.empty()) return {found, 0};
  const MoeCase layer = first_tokens(whole, std::min(tokens, whole.shards.front().routing.tokens));
  const std::span<const float> got = result.first(layer.x.size());

  Diagnosis best{"", std::numeric_limits<double>::infinity()};
  const auto consider = [&](const std::string& name, const std::vector<double>& want, std::span<const float> is) {
    const double error = compare(want, is, tolerance).relative_l2;
    if (error < best.error) best = {name, error};
  };
  for (const Mistake& mistake : likely_mistakes(layer)) {
    MoeCase wrong = layer;
    if (mistake.change) mistake.change(wrong);
    consider(mistake.name, result_of(wrong, mistake.reading), got);
  }
  const std::vector<double> right = reference_of(layer);
  const bool bytes_are_right = compare(right, packed_result_of(layer, *layer.fragment), tolerance).right();
  for (const Fragment& other : fragments())
    if (!bytes_are_right && takes(other, *layer.fragment, layer.shards.front()))
      consider(std::string("the bytes are those of ") + other.name + ", not of " + layer.fragment->name, right,
               packed_result_of(layer, other));
  if (best.error > tolerance) best.mistake.clear();
  return best;
}

}  // namespace mxfp4
