#include "kernels/moe/check/moe_mistakes.h"

#include <cmath>
#include <limits>

namespace mxfp4 {
namespace {

std::string spell(W13Order order) {
  const std::string first = order.up_first ? ", up first" : ", gate first";
  if (order.block == 0) return "halves" + first;
  if (order.block == 1) return "pairs" + first;
  return "blocks of " + std::to_string(order.block) + " rows" + first;
}

/// Every other order that some engine uses; first the one with gate and up swapped.
std::vector<W13Order> orders_but(W13Order right, int64_t intermediate) {
  std::vector<W13Order> orders{{right.block, !right.up_first}};
  for (const bool up_first : {right.up_first, !right.up_first})
    for (const int64_t block : {0, 1, 8, 16, 64})
      if (block != right.block && (block == 0 || intermediate % block == 0)) orders.push_back({block, up_first});
  return orders;
}

bool has_bias(const MoeCase& layer) { return layer.shards.front().source.front().gate.bias.data; }

void add_orders(const MoeCase& layer, std::vector<Mistake>& mistakes) {
  const MoeConfig& config = layer.shards.front().config;
  const W13Order right{config.w13_block, config.w13_up_first};
  for (const W13Order wrong : orders_but(right, config.padded_intermediate)) {
    const std::string as = spell(wrong) + ", but is read as " + spell(right);
    const std::string what = wrong.block == right.block ? "w1 and w3 (gate and up) are swapped: w13 is in " + as
                                                        : "w13's rows are in another order: " + as;
    mistakes.push_back({what, {.rows = wrong, .bias = wrong, .read = right}});
    if (!has_bias(layer)) continue;
    mistakes.push_back({what + "; its bias is right", {.rows = wrong, .bias = right, .read = right}});
    mistakes.push_back(
        {"w13's bias is not in the order of its rows: it is in " + as, {.rows = right, .bias = wrong, .read = right}});
  }
}

/// GPT-OSS's pairs read as halves, and the reverse. An engine that misreads the order may also write w13 in the order
/// that it assumed.
void add_misread(const MoeCase& layer, std::vector<Mistake>& mistakes) {
  const MoeConfig& config = layer.shards.front().config;
  const W13Order right{config.w13_block, config.w13_up_first}, pairs{1, false}, halves{};
  for (const bool is_pairs : {true, false})
    for (const W13Order written : {right, is_pairs ? halves : pairs}) {
      const W13Order is = is_pairs ? pairs : halves, taken = is_pairs ? halves : pairs;
      mistakes.push_back({is_pairs ? "the checkpoint's gate and up rows are pairs, but were read as halves"
                                   : "the checkpoint's gate and up rows are halves, but were read as pairs",
                          {.stored = is, .taken_for = taken, .rows = written, .bias = written, .read = right}});
    }
}

/// Reads a scale byte as an integer instead of an exponent, and rounds it to a power of two.
uint8_t byte_as_number(uint8_t byte) { return byte == 0 ? 0 : uint8_t(127 + std::lround(std::log2(double(byte)))); }
/// The value of a scale, converted to an integer.
uint8_t value_as_byte(uint8_t byte) { return byte < 127 ? 0 : byte > 134 ? 255 : uint8_t(1 << (byte - 127)); }
template <int by>
uint8_t moved(uint8_t byte) {
  return uint8_t(byte + by);
}

void add_values(std::vector<Mistake>& mistakes) {
  mistakes.push_back({"the scale is read as a number: byte b became 2^round(log2 b)", {.scale = byte_as_number}});
  mistakes.push_back({"the scale is read as a number: its value 2^(b-127) became the byte", {.scale = value_as_byte}});
  mistakes.push_back({"every scale is 2 times too large (byte + 1)", {.scale = moved<1>}});
  mistakes.push_back({"every scale is 2 times too small (byte - 1)", {.scale = moved<-1>}});
  mistakes.push_back({"every scale byte is 6 too large, as Marlin with FP8 activations wants it", {.scale = moved<6>}});
  mistakes.push_back({"every scale byte is 6 too small, as if not made for FP8 activations", {.scale = moved<-6>}});
  mistakes.push_back({"the nibbles of every byte are swapped", {.swap_nibbles = true}});
}

void scale_weights(MoeCase& layer, double by) {
  for (MoeShard& shard : layer.shards)
    for (float& weight : shard.routing.weights) weight = float(weight * by);
}

void add_forward(const MoeCase& layer, std::vector<Mistake>& mistakes) {
  const MoeConfig& config = layer.shards.front().config;
  const auto add = [&](const char* name, void (*change)(MoeCase&)) { mistakes.push_back({name, {}, change}); };
  if (layer.routed_scaling != 1) {
    add("the routed scaling factor is missing", [](MoeCase& l) { scale_weights(l, 1 / l.routed_scaling); });
    add("the routed scaling factor is applied twice", [](MoeCase& l) { scale_weights(l, l.routed_scaling); });
  }
  if (std::isfinite(config.limit))
    add("the clamp is missing", [](MoeCase& l) {
      for (MoeShard& s : l.shards) s.config.limit = std::numeric_limits<double>::infinity();
    });
  if (config.alpha != 1 || config.beta != 0)
    add("the activation is plain SiLU: alpha and beta are missing", [](MoeCase& l) {
      for (MoeShard& s : l.shards) {
        s.config.alpha = 1;
        s.config.beta = 0;
      }
    });
}

template <bool w13, bool w2>
void drop_bias(MoeCase& layer) {
  for (MoeShard& shard : layer.shards)
    for (SourceExpert& expert : shard.source) {
      if (w13) expert.gate.bias = expert.up.bias = {};
      if (w2) expert.down.bias = {};
    }
}

/// Every tensor-parallel rank adds the bias that only the first should.
void repeat_bias(MoeCase& layer) {
  for (MoeShard& shard : layer.shards)
    for (size_t e = 0; e < shard.source.size(); ++e)
      shard.source[e].down.bias = layer.shards.front().source[e].down.bias;
}

void add_biases(const MoeCase& layer, std::vector<Mistake>& mistakes) {
  if (!has_bias(layer)) return;
  mistakes.push_back({"w13's bias is missing", {}, drop_bias<true, false>});
  mistakes.push_back({"w2's bias is missing", {}, drop_bias<false, true>});
  mistakes.push_back({"both biases are missing", {}, drop_bias<true, true>});
  if (!layer.shards.back().source.front().down.bias.data)
    mistakes.push_back({"w2's bias is added by every rank", {}, repeat_bias});
}

}  // namespace

std::vector<Mistake> likely_mistakes(const MoeCase& layer) {
  std::vector<Mistake> mistakes;
  add_orders(layer, mistakes);
  add_misread(layer, mistakes);
  add_values(mistakes);
  add_forward(layer, mistakes);
  add_biases(layer, mistakes);
  return mistakes;
}

}  // namespace mxfp4
