// Shapes with which engines have failed in the field. Other failures are tags of tests that cover them: [vllm#43416].
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/program.h"

using namespace mxfp4;

namespace {

/// A small model with the intermediate size of DeepSeek-V4-Pro and MiniMax-M3.
void synth_3072(const std::string& dest, const std::string& model = "deepseek-v4-pro") {
  write_synth(model, dest, {.layers = 1, .experts = 2, .hidden = 256, .intermediate = 3072});
}

int64_t zeros(const std::string& tensor) {
  return std::count(tensor.begin() + int64_t(tensor.find(']')) + 1, tensor.end(), '\0');
}

/// One digit for each block of 16 rows of w13: 1 if any byte is not zero. AITER's tiles keep such blocks together.
std::string blocks_with_codes(const std::string& tensor, int64_t experts, int64_t rows) {
  const int64_t begin = int64_t(tensor.find(']')) + 1, size = (int64_t(tensor.size()) - begin) / experts / (rows / 16);
  std::string out;
  for (int64_t at = begin; at < int64_t(tensor.size()); at += size)
    out += std::any_of(tensor.begin() + at, tensor.begin() + at + size, [](char c) { return c; }) ? '1' : '0';
  return out;
}

std::map<std::string, std::string> tensors_of_rank(const std::string& out, int rank) {
  return tensors_of_file(fmt::format("{}/packed/tp8-rank{}-00001.safetensors", out, rank));
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  while (times-- > 0) out += text;
  return out;
}

}  // namespace

TEST_CASE("a rank's share begins where the checkpoint's does, however it is padded", "[vllm#42595]") {
  const TempDir dir;
  synth_3072(dir / "in");  // a rank's 384 columns are padded to 512; eight times 512 is more than 3072
  ConvertOptions o = conversion(dir / "in", dir / "out", "vllm", "aiter-a16w4");
  o.layout_version = "1", o.tp_size = 8;
  convert(o);
  for (const int rank : {5, 6, 7}) {
    INFO(rank);
    int compared = 0;
    for (const auto& [name, tensor] : tensors_of_rank(dir / "out", rank)) {
      if (!name.ends_with("w13_weight") && !name.ends_with("w2_weight")) continue;
      const int64_t bytes = int64_t(tensor.size() - tensor.find(']') - 1);
      CHECK(bytes == 2 * 512 * 256 / 2 * (name.ends_with("w13_weight") ? 2 : 1));
      CHECK(zeros(tensor) < bytes * 3 / 10);  // a quarter is padding; one in 256 random bytes is zero
      CHECK(zeros(tensor) > bytes * 2 / 10);
      ++compared;
    }
    CHECK(compared >= 2);
  }
  CHECK(is_right(dir / "out", dir / "in", Level::kernels));
}

TEST_CASE("DeepSeek-V4-Pro on eight ranks computes what it does on one", "[vllm#47528][long]") {
  const TempDir dir;
  synth_3072(dir / "in");
  for (const char* backend : {"marlin", "humming", "flashinfer-trtllm", "aiter-a16w4"}) {
    INFO(backend);
    ConvertOptions o = conversion(dir / "in", dir / "out", "vllm", backend);
    o.tp_size = 8, o.force = true;
    if (backend == std::string("aiter-a16w4")) o.layout_version = "1";  // version 2 does not support 384
    convert(o);
    CHECK(is_right(dir / "out", dir / "in", Level::kernels));
    CHECK(comes_back(dir));
    std::filesystem::remove_all(dir / "again");
  }
}

// aiter#3909: only the title is known (garbled output from tensor parallelism, padding and the order of w13).
// aiter#3862: wrong results for a padded w13 with separate gate and up, such as MiniMax-M3's on eight ranks (384
// columns padded to 512). aiter#5233: wrong results for 384 columns without padding, too.
TEST_CASE("gate and up are padded each at its own end; where they would be padded too little is refused",
          "[aiter#3909][long]") {
  const TempDir dir;
  struct Kernel {
    const char *backend, *model;
    int layers;
    std::string expert;  // its blocks of 16 rows
  };
  const Kernel kernels[] = {{"aiter-a16w4", "deepseek-v4-flash", 2, repeated("11", 24) + repeated("00", 8)},
                            {"aiter-w4a4", "minimax-m3-quark", 1, repeated(repeated("1", 24) + repeated("0", 8), 2)}};
  for (const Kernel& kernel : kernels) {
    std::filesystem::remove_all(dir / "in");
    synth_3072(dir / "in", kernel.model);
    ConvertOptions o = conversion(dir / "in", dir / "out", "vllm", kernel.backend);
    o.layout_version = "1", o.tp_size = 8;
    std::filesystem::remove_all(dir / "out");
    convert(o);
    for (const int rank : {0, 7}) {
      INFO(kernel.backend << " " << rank);
      int compared = 0;
      for (const auto& [name, tensor] : tensors_of_rank(dir / "out", rank)) {
        if (!name.ends_with("w13_weight")) continue;
        CHECK(blocks_with_codes(tensor, 2, 1024) == repeated(kernel.expert, 2));
        ++compared;
      }
      CHECK(compared == kernel.layers);
    }
    CHECK(is_right(dir / "out", dir / "in", Level::kernels));
  }
  ConvertOptions newest = conversion(dir / "in", dir / "refused", "vllm", "aiter-w4a4");
  newest.tp_size = 8;
  CHECK_THROWS_WITH(convert(newest),
                    Catch::Contains("intermediate 384 of it, and AITER's scales leave bytes unset there"));
}
