#include "kernels/moe/check/moe_diagnose.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "kernels/moe/check/moe_mistakes.h"
#include "kernels/moe/cpu/moe_cpu.h"
#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_reference.h"
#include "tests/support/golden_layer.h"

using namespace mxfp4;
using Catch::Contains;

namespace {

/// The result of diagnose() for the packed layer after `change`.
template <class Change>
std::string diagnosis(const MoeCase& right, Change change) {
  MoeCase wrong = right;
  change(wrong);
  return diagnose(right, packed_result_of(wrong, *wrong.format), right.format->tolerance).mistake;
}

}  // namespace

TEST_CASE("mistakes of the engine's side are named", "[vllm#44893][vllm#52240][sglang#26884]") {
  for (const char* file : golden_layers) {
    const GoldenLayer layer(file);
    for (const char* tag : {"vllm.marlin", "vllm.humming", "flashinfer_cutlass_sm90_v2", "vllm.triton_hopper_b",
                            "deepgemm_mega", "aiter_a16w4"}) {
      INFO(file << " " << tag);
      const MoeCase right = golden_case(layer, packing_of(tag));
      const auto config = [&](auto change) {
        return diagnosis(right, [&](MoeCase& c) { change(c.shards[0].config); });
      };
      CHECK(diagnosis(right, [](MoeCase& c) { c.shards[0].routing.weights[1] *= 2; }) == "");
      const auto order = [&](auto change) {  // the row order of the kernel
        MoeCase c = right;
        change(c.shards[0].config);
        return diagnosis(c, [](MoeCase&) {});
      };
      CHECK_THAT(order([](MoeConfig& c) { c.w13_up_first = !c.w13_up_first; }), Contains("swapped"));
      CHECK_THAT(order([](MoeConfig& c) { c.w13_block = c.w13_block ? 0 : 1; }), Contains("another order"));
      CHECK_THAT(config([](MoeConfig& c) { c.limit = std::numeric_limits<double>::infinity(); }),
                 Contains("clamp is missing"));
      const auto weights = [&](float by) {
        return diagnosis(right, [&](MoeCase& c) {
          for (float& w : c.shards[0].routing.weights) w *= by;
        });
      };
      CHECK_THAT(weights(1.5f), Contains("applied twice"));
      CHECK_THAT(weights(1 / 1.5f), Contains("factor is missing"));
      if (!layer.pairs) continue;
      CHECK_THAT(config([](MoeConfig& c) { c.alpha = 1, c.beta = 0; }), Contains("SiLU"));
      CHECK_THAT(diagnosis(right, [](MoeCase& c) { c.shards[0].packed.w13_bias = nullptr; }), Contains("w13's bias"));
      CHECK_THAT(diagnosis(right, [](MoeCase& c) { c.shards[0].packed.w2_bias = nullptr; }), Contains("w2's bias"));
    }
  }
}

namespace {

/// The checkpoint with changed bytes, as a wrong conversion would pack it. The wrong layer is packed here in the rows
/// of vLLM's CPU layout, because this layout is easy to make.
struct Wrong {
  std::vector<uint8_t> codes[2], scales[2];
  PackedMoe packed;
  Wrong(const GoldenLayer& layer, uint8_t (*code)(uint8_t), uint8_t (*scale)(uint8_t)) {
    packed = layer.packed("vllm_cpu");
    const int64_t values = layer.config.experts * layer.config.hidden * layer.config.intermediate;
    for (int w = 0; w < 2; ++w) {
      const int64_t all = w == 0 ? 2 * values : values;
      const uint8_t* c = w == 0 ? packed.w13 : packed.w2;
      const uint8_t* s = w == 0 ? packed.w13_scale : packed.w2_scale;
      codes[w].assign(c, c + all / 2), scales[w].assign(s, s + all / 32);
      for (uint8_t& byte : scales[w]) byte = scale(byte);
      // Byte 2j holds the even columns of two rows, byte 2j + 1 the odd ones.
      for (size_t i = 0; i < codes[w].size(); i += 2) {
        const uint8_t low = uint8_t((codes[w][i] & 15) | codes[w][i + 1] << 4),
                      high = uint8_t(codes[w][i] >> 4 | (codes[w][i + 1] & 0xF0));
        const uint8_t l = code(low), h = code(high);
        codes[w][i] = uint8_t((l & 15) | h << 4);
        codes[w][i + 1] = uint8_t(l >> 4 | (h & 0xF0));
      }
    }
    packed.w13 = codes[0].data();
    packed.w2 = codes[1].data();
    packed.w13_scale = scales[0].data();
    packed.w2_scale = scales[1].data();
  }
};
uint8_t same(uint8_t byte) { return byte; }

}  // namespace

TEST_CASE("mistakes of the conversion are named", "[vllm#43416]") {
  for (const char* file : golden_layers) {
    const GoldenLayer layer(file);
    INFO(file);
    MoeCase right = golden_case(layer, packing_of("vllm_cpu"));
    const auto of = [&](uint8_t (*code)(uint8_t), uint8_t (*scale)(uint8_t)) {
      const Wrong wrong(layer, code, scale);
      right.shards[0].packed = wrong.packed;
      return diagnose(right, packed_result_of(right, *right.format), right.format->tolerance).mistake;
    };
    CHECK_THAT(of([](uint8_t b) { return uint8_t(b << 4 | b >> 4); }, same), Contains("nibbles"));
    CHECK_THAT(of(same, [](uint8_t b) { return uint8_t(b + 1); }), Contains("2 times too large"));
    CHECK_THAT(of(same, [](uint8_t b) { return uint8_t(b - 1); }), Contains("2 times too small"));
    CHECK_THAT(of(same, [](uint8_t b) { return uint8_t(b < 127 ? 0 : 1 << (b - 127)); }),
               Contains("number: its value"));
    CHECK_THAT(of(same, [](uint8_t b) { return uint8_t(b < 91 ? 133 : 134); }), Contains("number: byte b"));
    CHECK(of(same, [](uint8_t b) { return uint8_t(b ^ 1); }) == "");
  }
}

TEST_CASE("bytes of another version of the layout are named") {
  const GoldenLayer layer("layer_deepseek.safetensors");
  const auto of = [&](const char* own, const char* other) {
    MoeCase c = golden_case(layer, packing_of(own));
    c.shards[0].packed = layer.packed(other);
    return diagnose(c, packed_result_of(c, *c.format), c.format->tolerance).mistake;
  };
  CHECK_THAT(of("flashinfer_cutlass_sm90_v2", "flashinfer_cutlass_sm90_v1"),
             Contains("are those of flashinfer-sm90-v1"));
  CHECK_THAT(of("flashinfer_cutlass_sm90_v1", "flashinfer_cutlass_sm90_v2"),
             Contains("are those of flashinfer-sm90-v2"));
  CHECK_THAT(of("vllm.humming", "sglang.humming"), Contains("are those of humming-wgmma"));
  CHECK_THAT(of("sglang.humming", "vllm.humming"), Contains("are those of humming,"));
  CHECK_THAT(of("vllm.marlin", "vllm.marlin_fp8"), Contains("are those of marlin-fp8"));
  CHECK_THAT(of("vllm.marlin_fp8", "vllm.marlin"), Contains("are those of marlin,"));
}

TEST_CASE("experts in another order and stale ranks are named") {
  const GoldenLayer layer("layer_gpt_oss.safetensors");
  MoeCase swapped = golden_case(layer, packing_of("vllm_cpu"));
  std::swap(swapped.shards[0].source[0], swapped.shards[0].source[1]);
  CHECK(diagnose(swapped, packed_result_of(swapped, *swapped.format), 1e-5).mistake ==
        "experts are in another order: expert 1 is in the place of expert 0");
  MoeCase stale = golden_tensor_parallel(layer, 2);
  CHECK(diagnose(stale, packed_result_of(stale, *stale.format), 1e-5).mistake.find("rank") == std::string::npos);
  stale.shards[1].packed = stale.shards[0].packed;
  CHECK(diagnose(stale, packed_result_of(stale, *stale.format), 1e-5).mistake ==
        "stale rank: rank 1 holds what belongs to rank 0");
}

TEST_CASE("a bias that every tensor-parallel rank adds is named") {
  const GoldenLayer layer("layer_gpt_oss.safetensors");
  const MoeCase right = golden_tensor_parallel(layer, 2);
  const auto repeat = [](MoeCase& c) { c.shards[1].packed.w2_bias = c.shards[0].packed.w2_bias; };
  CHECK(diagnosis(right, repeat) == "w2's bias is added by every rank");
}

TEST_CASE("a w13 bias in another order than its rows is named") {
  const GoldenLayer layer("layer_gpt_oss.safetensors");
  MoeCase c = golden_case(layer, packing_of("vllm_cpu"));
  std::vector<float> bias;
  const int64_t inter = c.shards[0].config.intermediate;
  const float* pairs = layer.floats("vllm_cpu.w13_bias");
  for (int64_t e = 0; e < c.shards[0].config.experts; ++e)
    for (int64_t n = 0; n < 2 * inter; ++n) bias.push_back(pairs[e * 2 * inter + n % inter * 2 + n / inter]);
  c.shards[0].packed.w13_bias = reinterpret_cast<const uint8_t*>(bias.data());
  CHECK(diagnose(c, packed_result_of(c, *c.format), 1e-5).mistake ==
        "w13's bias is not in the order of its rows: it is in halves, gate first, but is read as pairs, gate first");
}

namespace {

std::vector<double> result_with(const Mistake& mistake, MoeCase layer) {
  if (mistake.change) mistake.change(layer);
  std::vector<double> sum(layer.x.size(), 0.0);
  for (const MoeShard& shard : layer.shards) {
    const std::vector<double> part =
        moe_reference(shard.config, shard.source, layer.x, shard.routing, mistake.reading).out;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

/// Packings whose kernels read w13 in different orders.
constexpr const char* of_each_order[] = {"sglang.marlin", "flashinfer_trtllm_i128", "vllm_cpu"};

}  // namespace

TEST_CASE("each mistake of the list is named, and none that changes nothing", "[long]") {
  for (const char* file : golden_layers) {
    const GoldenLayer layer(file);
    for (const char* tag : of_each_order) {
      const MoeCase right = golden_case(layer, packing_of(tag));
      const std::vector<double> reference = reference_of(right);
      const std::vector<Mistake> mistakes = likely_mistakes(right);
      std::vector<std::vector<double>> results;
      for (const Mistake& m : mistakes) results.push_back(result_with(m, right));
      int named = 0;
      for (size_t i = 0; i < mistakes.size(); ++i) {
        INFO(file << " " << tag << " " << mistakes[i].name);
        const size_t first = size_t(std::find(results.begin(), results.end(), results[i]) - results.begin());
        const std::vector<float> got(results[i].begin(), results[i].end());
        const bool changes = !compare(reference, got, 1e-5).right();
        const Diagnosis d = diagnose(right, got, 1e-5);
        CHECK(d.mistake == (changes ? mistakes[first].name : ""));
        CHECK((d.explained > 0.99) == changes);
        named += changes;
      }
      CHECK(named > 15);
    }
  }
}

TEST_CASE("wrong bytes that no mistake accounts for are not explained") {
  for (const char* file : golden_layers) {
    const GoldenLayer layer(file);
    for (const Packing& packing : packings) {
      const MoeCase right = golden_case(layer, packing);
      const MoeConfig& c = right.shards[0].config;
      const PackedMoe& p = right.shards[0].packed;
      if (!p.w13) continue;  // the layer has no such packing
      const int64_t n = 2 * c.padded_intermediate, k = c.padded_hidden;
      const auto said_of = [&](const uint8_t* PackedMoe::*part, int64_t bytes, int64_t begin, int64_t end,
                               uint8_t bits) {
        std::vector<uint8_t> changed(p.*part, p.*part + bytes);
        for (int64_t i = begin; i < end; ++i) changed[size_t(i)] ^= uint8_t(bits * (1 + i * 7 % 3));
        const auto spoil = [&](MoeCase& wrong) { wrong.shards[0].packed.*part = changed.data(); };
        return diagnosis(right, spoil);
      };
      INFO(file << " " << packing.tag);
      const int64_t codes = right.format->code_bytes(n, k), scales = right.format->scale_bytes(n, k);
      const int64_t e = c.experts - 1;
      CHECK(said_of(&PackedMoe::w13, c.experts * codes, e * codes + 64, e * codes + 128, 0x11) == "");
      CHECK(said_of(&PackedMoe::w13_scale, c.experts * scales, e * scales, e * scales + 1, 1) == "");
      if (!p.w13_bias) continue;
      const int64_t element = bias_element_bytes(right.format->bias), bias = right.format->bias_bytes(n);
      CHECK(said_of(&PackedMoe::w13_bias, c.experts * bias, element - 1, element, 0x40) == "");
    }
  }
}
