// vLLM's own CUTLASS W4A4: its order of scales, and whole checkpoints of the family that it serves.
#include <catch2/catch.hpp>

#include "kernels/pack/device.h"
#include "tests/support/golden_layer.h"
#include "tests/support/program.h"

using namespace mxfp4;

TEST_CASE("vLLM's CUTLASS scales are swizzled as vLLM does, and computed by that reading") {
  const GoldenLayer layer("layer_vllm_cutlass.safetensors");
  for (const std::string role : {"w13", "w2"}) {
    const Tensor& in = *layer.golden.find("in." + role + "_scale");
    const Tensor& want = *layer.golden.find("vllm.mxfp4_mxfp4." + role + "_scale");
    for (int64_t e = 0; e < in.shape[0]; ++e) {
      Matrix m;
      m.real = m.padded = {in.shape[1], in.shape[2]};
      const int64_t bytes = m.real.n * m.real.b;
      m.view[0] = {layer.golden.bytes(in).data() + e * bytes, m.real.b};
      std::vector<uint8_t> packed(size_t(packed_bytes(Scales128x4{}, m.padded)));
      const PackItem item{Scales128x4{}, m, packed.data()};
      open_cpu()->pack({&item, 1});
      REQUIRE(int64_t(packed.size()) == bytes);
      CHECK(std::memcmp(packed.data(), layer.golden.bytes(want).data() + e * bytes, packed.size()) == 0);
    }
  }
  const MoeCase c = golden_case(layer, {"vllm.mxfp4_mxfp4", "cutlass-mxfp4", "plain", "sf_128x4.scales", 128, 128});
  CHECK(compare(reference_of(c), packed_result_of(c, *c.format), c.format->tolerance).right());
}

TEST_CASE("compressed-tensors goes to vLLM's CUTLASS W4A4 and back, where nothing has to be padded") {
  const TempDir dir;
  write_synth("qwen3-30b-a3b-ct", dir / "in", {.layers = 1, .experts = 2, .hidden = 256, .intermediate = 256});
  ConvertOptions c = conversion(dir / "in", dir / "out", "vllm", "cutlass-mxfp4");
  c.tp_size = 2;
  convert(c);
  CHECK(is_right(dir / "out", dir / "in", Level::kernels));
  CHECK(comes_back(dir));
  c.tp_size = 4, c.force = true;
  CHECK_THROWS_WITH(convert(c), Catch::Contains("intermediate 64 must be multiples of 128"));
  CHECK_THROWS_WITH(convert(conversion(tiny + "deepseek-v4", dir / "out", "vllm", "cutlass-mxfp4")),
                    Catch::Contains("cutlass-mxfp4"));
}
