// verify's kernels on a layer that a converter misunderstood.
#include "tests/support/misread_pair.h"

using namespace mxfp4;

namespace {

template <class F>
void each_byte(Bytes bytes, F change) {
  for (uint8_t& b : bytes) b = change(b);
}

/// Exchanges rows 2i and 2i + 1 of each expert.
void swap_pairs(Bytes bytes, const Tensor& t) {
  const int64_t rows = t.shape[0] * t.shape[1], row = t.bytes / rows;
  for (int64_t r = 0; r < rows; r += 2)
    std::swap_ranges(bytes.begin() + r * row, bytes.begin() + (r + 1) * row, bytes.begin() + (r + 1) * row);
}

/// Puts each row of an expert's first half before its row of the second: a reader of pairs then has halves.
void pair_halves(Bytes bytes, const Tensor& t) {
  const int64_t rows = t.shape[1], row = t.bytes / t.shape[0] / rows;
  const std::vector<uint8_t> old(bytes.begin(), bytes.end());
  for (int64_t r = 0; r < t.shape[0] * rows; ++r) {
    const int64_t in_expert = r % rows, from = r - in_expert + in_expert / 2 + in_expert % 2 * (rows / 2);
    std::copy_n(old.begin() + from * row, row, bytes.begin() + r * row);
  }
}

/// Exchanges experts 0 and 1 of a stacked tensor.
void swap_experts(Bytes bytes, const Tensor& t) {
  const int64_t one = t.bytes / t.shape[0];
  std::swap_ranges(bytes.begin(), bytes.begin() + one, bytes.begin() + one);
}

/// Multiplies bf16 values by 32, in their exponents.
static void times_32(Bytes b, const Tensor&) {
  for (size_t at = 0; at + 1 < b.size(); at += 2) {
    const uint32_t x = b[at] | b[at + 1] << 8;
    if ((x & 0x7F80) == 0) continue;
    b[at] = uint8_t(x + (5 << 7));
    b[at + 1] = uint8_t((x + (5 << 7)) >> 8);
  }
}

}  // namespace

static void name_mistakes_of_conversion(const Target& target) {
  using Catch::Contains;
  INFO(info(target));
  const auto gpt = [&](const std::string& suffix, auto change) {
    MisreadPair pair(gpt_oss);
    pair.spoil(suffix, change);
    pair.pack(target);
    return pair.kernels(target);
  };
  const auto swap_nibbles = [](Bytes b, const Tensor&) {
    each_byte(b, [](uint8_t x) { return uint8_t(x << 4 | x >> 4); });
  };
  CHECK_THAT(gpt("_blocks", swap_nibbles), Contains("nibbles of every byte are swapped"));
  CHECK_THAT(gpt("_scales", [](Bytes b, const Tensor&) { each_byte(b, [](uint8_t x) { return uint8_t(x + 1); }); }),
             Contains("2 times too large"));
  const auto value = [](uint8_t x) { return uint8_t(x < 127 ? 0 : 1 << (x - 127)); };
  CHECK_THAT(gpt("_scales", [&](Bytes b, const Tensor&) { each_byte(b, value); }), Contains("read as a number"));
  const auto number = [](uint8_t x) { return uint8_t(127 + std::lround(std::log2(double(x)))); };
  CHECK_THAT(gpt("_scales", [&](Bytes b, const Tensor&) { each_byte(b, number); }), Contains("read as a number"));
  const auto zero = [](Bytes b, const Tensor&) { each_byte(b, [](uint8_t) { return uint8_t(0); }); };
  CHECK_THAT(gpt("gate_up_proj_bias", zero), Contains("w13's bias is missing"));
  MisreadPair bias(gpt_oss);  // 32 times as large, so that the bf16 result of a GPU shows it
  bias.spoil("down_proj_bias", times_32, "right");
  bias.spoil("down_proj_bias", zero);
  bias.pack(target);
  CHECK_THAT(bias.kernels(target), Contains("w2's bias is missing"));
  CHECK_THAT(gpt("_bias", zero), Contains("both biases are missing"));
  CHECK_THAT(gpt("gate_up_proj_bias", swap_pairs), Contains("bias is not in the order of its rows"));

  MisreadPair swapped(gpt_oss), halves(gpt_oss);
  for (const char* suffix : {"gate_up_proj_blocks", "gate_up_proj_scales", "gate_up_proj_bias"})
    swapped.spoil(suffix, swap_pairs), halves.spoil(suffix, pair_halves);
  swapped.pack(target), halves.pack(target);
  CHECK_THAT(swapped.kernels(target), Contains("w1 and w3 (gate and up) are swapped"));
  CHECK_THAT(halves.kernels(target), Contains("relative L2") && Contains("rows are pairs, but were read as halves"));

  MisreadPair names(deepseek);
  names.swap_names(".w1.", ".w3.");
  names.pack(target);
  CHECK_THAT(names.kernels(target), Contains("w1 and w3 (gate and up) are swapped"));

  MisreadPair order(gpt_oss);
  for (const char* suffix : {"_blocks", "_scales", "_bias"}) order.spoil(suffix, swap_experts);
  order.pack(target);
  CHECK_THAT(order.kernels(target), Contains("experts are in another order: expert 1 is in the place of expert 0"));
}
TEST_CASE("kernels alone name every mistake of the conversion", "[long]") {
  for (const Target& target : on_cpu) name_mistakes_of_conversion(target);
}
TEST_CASE("kernels on a GPU alone name every mistake of the conversion", "[gpu]") {
  for (const Target& target : gpu_targets()) name_mistakes_of_conversion(target);
}

/// Puts the bytes of one version under the headers and the manifest of the other, which have the same sizes.
static void name_other_version(const char* device) {
  const Target v1{device, "vllm", "flashinfer-cutlass", "v1"}, v2{device, "vllm", "flashinfer-cutlass", "v2"};
  for (const auto& [is, said] : {std::pair{v1, v2}, std::pair{v2, v1}})
    for (const char* file : {gpt_oss, deepseek}) {
      MisreadPair pair(file);
      pair.pack(is);
      const std::string path = pair.out("packed/packed-00001.safetensors");
      const std::string bytes = read_text(path, 1 << 28);
      std::filesystem::remove_all(pair.out(""));
      pair.pack(said);
      std::string text = read_text(path, 1 << 28);
      const size_t from = data_begin(bytes), to = data_begin(text);
      REQUIRE(bytes.size() - from == text.size() - to);
      write_text(path, text.replace(to, text.npos, bytes, from));
      CHECK_THAT(pair.kernels(said),
                 Catch::Contains(fmt::format("are those of flashinfer-sm90-{}, not of flashinfer-sm90-{}", is.version,
                                             said.version)));
    }
}
TEST_CASE("kernels name another version of the layout") { name_other_version("cpu"); }
TEST_CASE("kernels on a GPU name another version of the layout", "[gpu]") {
  if (const std::string missing = cuda_kernel_missing(kernel_format("flashinfer-sm90-v2")); !missing.empty()) {
    WARN("skipped: " << missing);
    return;
  }
  name_other_version("cuda");
}
