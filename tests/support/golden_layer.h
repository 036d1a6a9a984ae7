// A golden MoE layer in the form that the kernels read: the checkpoint's rows, and the packed tensors of a backend.
#pragma once

#include <fmt/format.h>

#include "kernels/hd.h"
#include "kernels/moe/check/moe_diagnose.h"
#include "kernels/moe/moe_inputs.h"
#include "kernels/moe/routing.h"
#include "tests/support/golden.h"

namespace mxfp4 {

struct GoldenLayer {
  explicit GoldenLayer(const std::string& file) : golden(file) {
    config.experts = std::stoll(golden.metadata("experts"));
    config.hidden = config.padded_hidden = std::stoll(golden.metadata("hidden"));
    config.intermediate = config.padded_intermediate = std::stoll(golden.metadata("intermediate"));
    pairs = golden.metadata("w13_rows") == "pairs";
    config.alpha = pairs ? 1.702 : 1;
    config.beta = pairs ? 1 : 0;
    config.limit = pairs ? 7 : 10;
    config.top_k = 2;
    source = slice(0, config.intermediate);
  }

  /// The checkpoint's experts with intermediate columns [first, end).
  MoeSource slice(int64_t first, int64_t end) const {
    MoeSource experts;
    for (int64_t e = 0; e < config.experts; ++e)
      experts.push_back({part(e, false, first, end), part(e, true, first, end), down(e, first, end)});
    return experts;
  }

  const uint8_t* data(const std::string& name) const {
    const Tensor* t = golden.find(name);
    return t ? golden.bytes(*t).data() : nullptr;
  }
  const float* floats(const std::string& name) const { return reinterpret_cast<const float*>(data(name)); }
  /// names: codes, scales and bias of w13, then of w2, for engines that use these names.
  PackedMoe packed(const std::string& tag) const {
    PackedMoe p;
    const bool fc = tag.find("cutlass") != tag.npos, gemm = tag.find("trtllm") != tag.npos;
    const std::string a = tag + (fc     ? ".fc1_"
                                 : gemm ? ".gemm1_"
                                        : ".w13"),
                      b = tag + (fc     ? ".fc2_"
                                 : gemm ? ".gemm2_"
                                        : ".w2");
    const std::string codes = fc ? "expert_weights" : gemm ? "weights" : "";
    const std::string scales = fc ? "scales" : gemm ? "weights_scale" : "_scale";
    const std::string bias = fc ? "expert_biases" : gemm ? "bias" : "_bias";
    p.w13 = data(a + codes);
    p.w13_scale = data(a + scales);
    p.w13_bias = data(a + bias);
    p.w2 = data(b + codes);
    p.w2_scale = data(b + scales);
    p.w2_bias = data(b + bias);
    p.w13_residual = floats(a + "_residual");
    p.w2_residual = floats(b + "_residual");
    return p;
  }

  Golden golden;
  MoeConfig config;
  bool pairs = false;
  MoeSource source;

 private:
  /// Gate or up of one expert.
  SourceMatrix part(int64_t e, bool up, int64_t first, int64_t end) const {
    const int64_t rows = 2 * config.intermediate, step = pairs ? 2 : 1;
    const int64_t row = e * rows + (up ? (pairs ? 1 : config.intermediate) : 0) + first * step;
    const auto view = [&](const char* name, int64_t bytes) {
      const uint8_t* p = data(name);
      return SourceRows{p ? p + row * bytes : nullptr, step * bytes};
    };
    return {end - first, config.hidden, view("in.w13", config.hidden / 2), view("in.w13_scale", config.hidden / 32),
            view("in.w13_bias", 2)};
  }
  SourceMatrix down(int64_t e, int64_t first, int64_t end) const {
    const auto view = [&](const char* name, int64_t bytes, int64_t offset) {
      const uint8_t* p = data(name);
      return SourceRows{p ? p + e * config.hidden * bytes + offset : nullptr, bytes};
    };
    return {config.hidden, end - first, view("in.w2", config.intermediate / 2, first / 2),
            view("in.w2_scale", config.intermediate / 32, first / 32), view("in.w2_bias", 2, 0)};
  }
};

/// A kernel's form of the golden layers: a row of "kernels" in testdata/golden/packings.json.
struct Packing {
  std::string tag;  // of its tensors' names
  std::string format;
  std::string codes, scales;  // names, because this file must not include layouts
  int64_t hidden, inter;      // sizes are padded to multiples of these
  bool halves = false;        // SGLang separates GPT-OSS's pairs for Marlin
  uint8_t add = 0;            // added to every scale
};
inline std::vector<Packing> read_packings() {
  std::vector<Packing> out;
  const Json table = golden_table("packings.json");
  for (const Json& p : table.at("kernels"))
    out.push_back({p["tag"], p["format"], p["codes"], p["scales"], p["hidden"], p["intermediate"],
                   p.value("halves", false), p.value("add", uint8_t(0))});
  return out;
}
inline const std::vector<Packing> packings = read_packings();
inline const Packing& packing_of(std::string_view tag) {
  for (const Packing& p : packings)
    if (p.tag == tag) return p;
  throw std::invalid_argument("no such packing");
}

inline MoeConfig config_of(const GoldenLayer& layer, const Packing& packing) {
  const KernelFormat& format = kernel_format(packing.format);
  MoeConfig c = layer.config;
  c.padded_hidden = round_up(c.hidden, packing.hidden);
  c.padded_intermediate = round_up(c.intermediate, packing.inter);
  const W13Order loaded{layer.pairs && !packing.halves ? 1 : 0, false};
  const W13Order order = format.w13.value_or(loaded);
  c.w13_block = order.block;
  c.w13_up_first = order.up_first;
  return c;
}

inline constexpr double golden_routed_scaling = 1.5;
inline Routing golden_routing(const GoldenLayer& layer) {
  RouterRule rule;
  rule.experts = layer.config.experts;
  rule.top_k = layer.config.top_k;
  rule.scaling = golden_routed_scaling;
  return route_random(rule, 3, 1);
}

/// The layer on one rank with the golden tensors of `packing`.
inline MoeCase golden_case(const GoldenLayer& layer, const Packing& packing) {
  MoeCase c;
  c.format = &kernel_format(packing.format);
  c.routed_scaling = golden_routed_scaling;
  const Routing routing = golden_routing(layer);
  c.x = moe_inputs(layer.config, layer.source, routing, 2);
  c.shards.push_back({config_of(layer, packing), layer.source, routing, layer.packed(packing.tag)});
  return c;
}

inline const char* const golden_layers[] = {"layer_deepseek.safetensors", "layer_gpt_oss.safetensors"};
/// The golden layers, and a layer with other packings.
inline const char* const packed_layers[] = {golden_layers[0], golden_layers[1], "layer_vllm_triton_rocm.safetensors"};

/// GPT-OSS on `tp` ranks as vLLM slices it for Marlin.
inline MoeCase golden_tensor_parallel(const GoldenLayer& layer, int64_t tp) {
  MoeCase c = golden_case(layer, packing_of("vllm.marlin"));
  const int64_t inter = layer.config.intermediate, width = (inter / 32 + tp - 1) / tp * 32;
  const MoeShard whole = c.shards.front();
  c.shards.clear();
  for (int64_t rank = 0; rank < tp; ++rank) {
    MoeShard shard = whole;
    const int64_t first = rank * width, end = std::min(inter, first + width);
    shard.config.intermediate = end - first;
    shard.config.padded_intermediate = round_up((inter + tp - 1) / tp, 128);
    shard.source = layer.slice(first, end);
    for (SourceExpert& expert : shard.source)
      if (rank > 0) expert.down.bias = {};
    shard.packed = layer.packed(fmt::format("vllm.marlin.tp{}.rank{}", tp, rank));
    c.shards.push_back(shard);
  }
  return c;
}

}  // namespace mxfp4
