#include "src/synth/fill.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/support/synth_values.h"

using namespace mxfp4;

namespace {

double code_value(int code) {
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -values[code & 7] : values[code & 7];
}

}  // namespace

TEST_CASE("tiny checkpoints hold every code, and the scale byte 0 exactly where a group is zero") {
  for (const SynthModel& model : synth_models()) {
    INFO(model.name);
    const SynthCheckpoint checkpoint = describe_checkpoint(model.name, tiny_sizes());
    int64_t codes[16] = {}, zero_groups = 0, groups = 0;
    for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
      const SynthTensor& scale = checkpoint.tensors[i];
      if (scale.fill != Fill::scales) continue;
      const SynthTensor& code = checkpoint.tensors[size_t(scale.weight)];
      REQUIRE(code.fill == Fill::codes);
      REQUIRE(code.bytes == 16 * scale.bytes);
      std::vector<uint8_t> bytes(size_t(code.bytes)), scales(size_t(scale.bytes));
      fill(checkpoint, scale.weight, 1, 0, bytes.data(), code.bytes);
      fill(checkpoint, int64_t(i), 1, 0, scales.data(), scale.bytes);
      for (uint8_t b : bytes) codes[b & 15]++, codes[b >> 4]++;
      for (size_t g = 0; g < scales.size(); ++g) {
        const bool zero = std::all_of(&bytes[16 * g], &bytes[16 * g] + 16, [](uint8_t b) { return b == 0; });
        if (scales[g] == 255 || zero != (scales[g] == 0)) FAIL(scale.name << " group " << g);
        zero_groups += zero;
      }
      groups += scale.bytes;
    }
    CHECK(*std::min_element(codes, codes + 16) > groups);  // 2 per group are expected
    CHECK(zero_groups > 0);
    CHECK(zero_groups < groups / 256);
  }
}

TEST_CASE("rows of MXFP4 and FP8 weights have RMS 1/sqrt(columns)") {
  SynthSizes sizes;
  sizes.layers = 1;
  sizes.experts = 2;
  sizes.hidden = 2880;
  sizes.intermediate = 2880;
  sizes.vocab = 64;
  const SynthCheckpoint checkpoint = describe_checkpoint("deepseek-v4-flash", sizes);
  for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const SynthTensor& scale = checkpoint.tensors[i];
    const SynthTensor& weight = checkpoint.tensors[size_t(scale.weight)];
    if (scale.fill != Fill::scales && scale.fill != Fill::block_scales) continue;
    INFO(weight.name);
    const bool mxfp4 = scale.fill == Fill::scales;
    const int64_t rows = std::min<int64_t>(weight.shape[0], 300), columns = weight.shape[1] * (mxfp4 ? 2 : 1);
    const int64_t group_rows = mxfp4 ? 1 : 128, group_columns = mxfp4 ? 32 : 128;
    std::string data(size_t(rows * weight.shape[1]), '\0'), scales(size_t(scale.bytes), '\0');
    for (int64_t at = 0; at < int64_t(data.size()); at += fill_block)
      fill(checkpoint, scale.weight, 1, at / fill_block, reinterpret_cast<uint8_t*>(&data[size_t(at)]),
           std::min(fill_block, int64_t(data.size()) - at));
    fill(checkpoint, int64_t(i), 1, 0, reinterpret_cast<uint8_t*>(scales.data()), scale.bytes);
    double sum = 0;
    std::set<int> seen;
    for (int64_t r = 0; r < rows; ++r) {
      double row_sum = 0;
      for (int64_t k = 0; k < columns; ++k) {
        const uint8_t s = uint8_t(scales[size_t(r / group_rows * scale.shape[1] + k / group_columns)]);
        const double value = mxfp4 ? code_value(uint8_t(data[size_t((r * columns + k) / 2)]) >> (k % 2 * 4) & 15)
                                   : float_at(weight, data, r * columns + k);
        row_sum += std::pow(value * std::ldexp(1.0, s - 127), 2);
        seen.insert(s);
      }
      if (row_sum < 0.1 || row_sum > 20) FAIL("row " << r << ": " << row_sum);
      sum += row_sum;
    }
    const double rms = std::sqrt(sum / double(rows));
    CHECK(rms > (mxfp4 ? 0.9 : 0.6));
    CHECK(rms < (mxfp4 ? 1.1 : 1.6));
    if (mxfp4) CHECK(*seen.rbegin() - *std::next(seen.begin()) >= 8);  // the first is 0
  }
}

TEST_CASE("hash layers name different experts for each token") {
  const SynthCheckpoint checkpoint = describe_checkpoint("deepseek-v4-flash", tiny_sizes());
  for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const SynthTensor& t = checkpoint.tensors[i];
    if (t.fill != Fill::expert_ids) continue;
    std::vector<int64_t> ids(size_t(t.bytes / 8));
    fill(checkpoint, int64_t(i), 1, 0, reinterpret_cast<uint8_t*>(ids.data()), t.bytes);
    std::set<int64_t> used(ids.begin(), ids.end());
    CHECK(used == std::set<int64_t>{0, 1, 2, 3});
    for (size_t row = 0; row < ids.size(); row += 2) CHECK(ids[row] != ids[row + 1]);
  }
}
