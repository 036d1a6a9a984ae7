#include "kernels/moe/cpu/moe_cpu.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_reference.h"
#include "tests/support/golden_layer.h"

using namespace mxfp4;

namespace {

/// Relative L2 between the packed forward and the reference.
double error(const MoeCase& c) {
  return compare(reference_of(c), packed_result_of(c, *c.format), c.format->tolerance).relative_l2;
}

/// Copies of the packed tensors, which the tests damage.
struct Spoilt {
  std::vector<uint8_t> w13, w13_scale, w2, w2_scale;
  Spoilt(const MoeCase& c) {
    const MoeConfig& m = c.shards.front().config;
    const PackedMoe& p = c.shards.front().packed;
    const auto copy = [&](const uint8_t* data, int64_t bytes) { return std::vector(data, data + m.experts * bytes); };
    const int64_t h = m.padded_hidden, i = m.padded_intermediate;
    w13 = copy(p.w13, c.format->code_bytes(2 * i, h));
    w13_scale = copy(p.w13_scale, c.format->scale_bytes(2 * i, h));
    w2 = copy(p.w2, c.format->code_bytes(h, i));
    w2_scale = copy(p.w2_scale, c.format->scale_bytes(h, i));
  }
  MoeCase in(MoeCase c) const {
    PackedMoe& p = c.shards.front().packed;
    p.w13 = w13.data();
    p.w13_scale = w13_scale.data();
    p.w2 = w2.data();
    p.w2_scale = w2_scale.data();
    return c;
  }
};

/// One expert's weights, read by the format.
std::vector<float> read_all(const KernelFormat& format, const PackedMatrix& m) {
  std::vector<float> values(m.n * m.k), block(format.rows * m.k);
  for (int64_t n0 = 0; n0 < m.n; n0 += format.rows) {
    format.read(m, n0, 0, m.k, block.data());
    std::copy(block.begin(), block.end(), values.begin() + n0 * m.k);
  }
  return values;
}

}  // namespace

TEST_CASE("every kernel format computes the golden layers' MoE from the packed bytes") {
  for (const char* file : packed_layers) {
    const GoldenLayer layer(file);
    for (const Packing& packing : packings) {
      const MoeCase c = golden_case(layer, packing);
      const MoeShard& shard = c.shards.front();
      if (!shard.packed.w13) continue;  // the packing is in another layer
      INFO(file << " " << packing.tag);
      const MoeCpuOutput got = moe_cpu(*c.format, shard.config, shard.packed, c.x, shard.routing);
      const Comparison right = compare(reference_of(c), got.out, c.format->tolerance);
      CHECK(right.relative_l2 <= c.format->tolerance);
      CHECK(right.cosine > 0.999999);
      CHECK(right.not_finite == 0);
      CHECK(got.leaks == 0);
    }
  }
}

TEST_CASE("tensor-parallel ranks add up to the layer, the bias of w2 once") {
  const GoldenLayer layer("layer_gpt_oss.safetensors");
  const std::vector<double> whole = reference_of(golden_case(layer, packing_of("vllm.marlin")));
  for (const int64_t tp : {2, 4}) {
    const MoeCase c = golden_tensor_parallel(layer, tp);
    CHECK(compare(whole, packed_result_of(c, *c.format), c.format->tolerance).right());
  }
}

TEST_CASE("expert-parallel ranks add up to the layer") {
  const GoldenLayer layer("layer_deepseek.safetensors");
  MoeCase c = golden_case(layer, packing_of("vllm.marlin"));
  const std::vector<double> whole = reference_of(c);
  const MoeShard all = c.shards.front();
  const MoeConfig& m = all.config;
  c.shards.clear();
  for (int64_t rank = 0; rank < 2; ++rank) {
    MoeShard shard = all;
    shard.config.experts = 1;
    shard.source = {all.source[rank]};
    for (int32_t& id : shard.routing.ids) id = id == rank ? 0 : -1;
    shard.packed.w13 += rank * m.padded_hidden * m.padded_intermediate;
    shard.packed.w2 += rank * m.padded_hidden * m.padded_intermediate / 2;
    shard.packed.w13_scale += rank * m.padded_hidden * m.padded_intermediate / 16;
    shard.packed.w2_scale += rank * m.padded_hidden * m.padded_intermediate / 32;
    c.shards.push_back(shard);
  }
  CHECK(compare(whole, packed_result_of(c, *c.format), c.format->tolerance).right());
}

TEST_CASE("kernel formats without a golden layer: the layout's golden layer with the rows that they read") {
  const GoldenLayer layer("layer_deepseek.safetensors");
  // CuTe-DSL has CUTLASS's rows [up; gate] in blocks of 64. A block of 64 rows is half of a scale block.
  const MoeCase cutlass = golden_case(layer, packing_of("flashinfer_cutlass_sm100"));
  Spoilt packed(cutlass);
  const Spoilt plain = packed;
  const int64_t row = layer.config.hidden / 2, inter = layer.config.intermediate, groups = layer.config.hidden / 32;
  for (int64_t e = 0; e < layer.config.experts; ++e)
    for (int64_t n = 0; n < 2 * inter; ++n) {
      const int64_t from = n / 64 % 2 * inter + n / 128 * 64 + n % 64;
      std::copy_n(plain.w13.data() + (e * 2 * inter + from) * row, row, packed.w13.data() + (e * 2 * inter + n) * row);
      const auto at = [&](int64_t r, int64_t g) {
        return ((e * 2 + r / 128) * (groups / 4) + g / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + g % 4;
      };
      for (int64_t g = 0; g < groups; ++g) packed.w13_scale[at(n, g)] = plain.w13_scale[at(from, g)];
    }
  MoeCase dsl = packed.in(cutlass);
  dsl.format = &kernel_format("flashinfer-cutedsl");
  CHECK(error(dsl) > 0.1);  // still read as halves
  dsl.shards.front().config.w13_block = dsl.format->w13->block;
  CHECK(error(dsl) <= dsl.format->tolerance);
}

TEST_CASE("kernel formats read the golden matrices exactly, every scale byte included") {
  struct Vector {
    const char *format, *codes, *scales;
  };
  const Vector vectors[] = {{"marlin", "marlin.codes", "marlin.scales"},
                            {"flashinfer-sm90-v1", "flashinfer_sm90_v1.codes", "flashinfer_sm90_v1.scales"},
                            {"flashinfer-sm90-v2", "flashinfer_sm90_v2.codes", "flashinfer_sm90_v2.scales"},
                            {"flashinfer-trtllm", "trtllm.codes", "trtllm.scales"},
                            {"flashinfer-cutlass-sm100", "codes", "sf_128x4.scales"},
                            {"triton-hopper-a", "triton_hopper_A.codes", "triton_hopper_w8.scales"},
                            {"triton-hopper-b", "triton_hopper_B.codes", "triton_hopper_w8.scales"},
                            {"triton-hopper-c", "triton_hopper_C.codes", "triton_hopper_w8.scales"},
                            {"triton-blackwell", "triton_blackwell.codes", "triton_blackwell.scales"},
                            {"deepgemm", "codes", "deepgemm.scales"},
                            {"deepgemm-mega", "codes", "deepgemm_mega.scales"},
                            {"aiter-w4a4", "aiter_16x16.codes", "cdna4.scales"},
                            {"vllm-cpu", "vllm_cpu.codes", "vllm_cpu.scales"}};
  const Golden golden("matrix_2x256x256.safetensors");
  const int64_t n = 256, k = 256;
  for (const Vector& v : vectors) {
    INFO(v.format);
    const KernelFormat& format = kernel_format(v.format);
    const uint8_t* codes = golden.bytes(*golden.find(v.codes)).data();
    const uint8_t* scales = golden.bytes(*golden.find(v.scales)).data();
    const bool zero_is_zero = format.bias == BiasForm::bf16_mma ||
                              std::string(v.format).find("sm90") != std::string::npos ||
                              std::string(v.format).find("hopper") != std::string::npos;
    int64_t wrong = 0, special = 0;
    for (int64_t e = 0; e < 2; ++e) {
      const PackedMatrix m{codes + e * format.code_bytes(n, k), scales + e * format.scale_bytes(n, k), n, k};
      const std::vector<float> got = read_all(format, m);
      const uint8_t* source_scales = golden.bytes(*golden.find("scales")).data() + e * n * k / 32;
      const SourceMatrix source{
          n, k, {golden.bytes(*golden.find("codes")).data() + e * n * k / 2, k / 2}, {source_scales, k / 32}, {}};
      std::vector<double> want(k);
      for (int64_t r = 0; r < n; ++r) {
        dequantise_row(source, r, {}, want);
        for (int64_t c = 0; c < k; ++c) {
          const uint8_t byte = source_scales[r * (k / 32) + c / 32];
          const float is = got[r * k + c];
          if (byte == 255)
            wrong += is != 0 && std::isfinite(is), ++special;  // NaN, or Inf times the code
          else if (byte == 0 && zero_is_zero)
            wrong += is != 0, ++special;
          else
            wrong += is != float(want[c]);
        }
      }
    }
    CHECK(wrong == 0);
    CHECK(special > 0);
  }
}

TEST_CASE("what is wrong exceeds the tolerance by far") {
  for (const char* file : golden_layers) {
    const GoldenLayer layer(file);
    const MoeCase right = golden_case(layer, packing_of("flashinfer_cutlass_sm90_v2"));
    const auto error_with = [&](auto change) {
      MoeCase c = right;
      change(c.shards.front());
      return compare(reference_of(right), packed_result_of(c, *c.format), 0).relative_l2;
    };
    INFO(file);
    const PackedMoe v1 = layer.packed("flashinfer_cutlass_sm90_v1");
    CHECK(error_with([&](MoeShard& s) { s.packed = v1; }) > 0.5);
    CHECK(error_with([](MoeShard& s) { s.config.w13_up_first = false; }) > 0.3);
    CHECK(error_with([](MoeShard& s) { s.config.w13_block = 1; }) > 0.3);
    CHECK(error_with([](MoeShard& s) { s.config.limit = 1e30; }) > 0.1);
    CHECK(error_with([](MoeShard& s) { s.config.alpha = 1.4; }) > 0.01);
    CHECK(error_with([](MoeShard& s) { s.config.beta += 1; }) > 0.1);
    CHECK(error_with([](MoeShard& s) { s.routing.weights[0] *= 1.5; }) > 0.05);
    if (layer.pairs) {
      CHECK(error_with([](MoeShard& s) { s.packed.w13_bias = nullptr; }) > 0.01);
      CHECK(error_with([](MoeShard& s) { s.packed.w2_bias = nullptr; }) > 5e-5);
    }
    Spoilt scales(right);
    for (uint8_t& byte : scales.w13_scale) byte += 1;
    CHECK(error(scales.in(right)) > 0.3);
    Spoilt nibbles(right);
    for (uint8_t& byte : nibbles.w2) byte = uint8_t(byte << 4 | byte >> 4);
    CHECK(error(nibbles.in(right)) > 0.3);
  }
}

TEST_CASE("a pad that is not zero leaks, and is counted") {
  const GoldenLayer layer("layer_gpt_oss.safetensors");
  const MoeCase right = golden_case(layer, packing_of("vllm_cpu"));
  const MoeCase padded = golden_case(layer, packing_of("deepgemm"));
  Spoilt rows(padded);
  const int64_t last = 2 * padded.shards.front().config.padded_intermediate - 1;
  const int64_t half = padded.shards.front().config.padded_hidden / 2;
  std::fill_n(rows.w13.data() + (last - padded.shards.front().config.padded_intermediate) * half, half, 0x22);
  std::fill_n(rows.w13.data() + last * half, half, 0x22);
  const MoeCase wrong = rows.in(padded);
  const MoeShard& shard = wrong.shards.front();
  CHECK(moe_cpu(*wrong.format, shard.config, shard.packed, wrong.x, shard.routing).leaks > 0);
  CHECK(right.shards.front().config.padded_hidden == layer.config.hidden);
}

TEST_CASE("sizes that a format cannot take are refused") {
  const GoldenLayer layer("layer_gpt_oss.safetensors");
  MoeCase c = golden_case(layer, packing_of("vllm.marlin"));
  MoeShard& shard = c.shards.front();
  shard.config.padded_hidden = layer.config.hidden + 32;
  CHECK_THROWS_AS(moe_cpu(*c.format, shard.config, shard.packed, c.x, shard.routing), std::invalid_argument);
}
