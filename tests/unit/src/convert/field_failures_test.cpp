// The shapes of failures that engines had in the field; others are tags of the tests that cover them: [vllm#43416].
#include <catch2/catch.hpp>

#include "src/synth/synth.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

/// DeepSeek-V4-Pro's intermediate size, all else small.
void synth_pro(const std::string& dest) {
  SynthOptions o;
  o.model = "deepseek-v4-pro", o.dest = dest;
  o.sizes.tiny = true, o.sizes.hidden = 256, o.sizes.intermediate = 3072, o.sizes.layers = 1, o.sizes.experts = 2;
  synth(o);
}

int64_t zeros(const std::string& tensor) {
  return std::count(tensor.begin() + int64_t(tensor.find(']')) + 1, tensor.end(), '\0');
}

}  // namespace

TEST_CASE("a rank's share begins where the checkpoint's does, however it is padded", "[vllm#42595]") {
  const TempDir dir;
  synth_pro(dir / "in");  // 384 of a rank are padded to 512: eight times that is more than 3072
  for (const int rank : {5, 6, 7}) {
    ConvertOptions o = conversion(dir / "in", dir / "out", "vllm", "aiter-a16w4");
    o.layout_version = "1", o.tp_size = 8, o.rank = rank, o.force = true;
    convert(o);
    INFO(rank);
    int compared = 0;
    for (const auto& [name, tensor] : tensors_of(dir / "out")) {
      if (!name.ends_with("w13_weight") && !name.ends_with("w2_weight")) continue;
      const int64_t bytes = int64_t(tensor.size() - tensor.find(']') - 1);
      CHECK(bytes == 2 * 512 * 256 / 2 * (name.ends_with("w13_weight") ? 2 : 1));
      CHECK(zeros(tensor) < bytes * 3 / 10);  // a quarter is padded; of random bytes one in 256 is zero
      CHECK(zeros(tensor) > bytes * 2 / 10);
      ++compared;
    }
    CHECK(compared >= 2);
    CHECK(is_right(dir / "out", dir / "in", Level::kernels));
  }
}

TEST_CASE("DeepSeek-V4-Pro on eight ranks computes what it does on one", "[vllm#47528]") {
  const TempDir dir;
  synth_pro(dir / "in");
  for (const char* backend : {"marlin", "humming", "flashinfer-trtllm", "aiter-a16w4"}) {
    INFO(backend);
    ConvertOptions o = conversion(dir / "in", dir / "out", "vllm", backend);
    o.tp_size = 8, o.force = true;
    if (backend == std::string("aiter-a16w4")) o.layout_version = "1";  // 2 cannot serve 384
    convert(o);
    CHECK(is_right(dir / "out", dir / "in", Level::kernels));
    run_unpack(dir / "out", dir / "again");
    CHECK(contents_of(dir / "again") == contents_of(dir / "in"));
    std::filesystem::remove_all(dir / "again");
  }
}
